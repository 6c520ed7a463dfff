import { defineConfig } from "vitest/config"

export default defineConfig({
  cacheDir: "../../../../node_modules/.vite",
  // Safety nets: nothing here is about speed.
  test: { testTimeout: 600_000, hookTimeout: 600_000, expect: { poll: { timeout: 120_000 } } },
})
