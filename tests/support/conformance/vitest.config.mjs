import { defineConfig } from "vitest/config"

export default defineConfig({
  cacheDir: "../../../node_modules/.vite",
  test: {
    setupFiles: ["./patience.mjs"],
    testNamePattern: process.env.CONFORMANCE_TESTS || undefined,
    // Safety nets: nothing here is about speed.
    testTimeout: 600_000,
    hookTimeout: 600_000,
  },
})
