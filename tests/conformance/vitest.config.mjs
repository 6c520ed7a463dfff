import { defineConfig } from "vitest/config"

export default defineConfig({
  cacheDir: "../../node_modules/.vite",
  test: {
    // Time enough for a slow machine; the suite's own deadlines are the strict ones.
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
})
