import { defineConfig } from "vitest/config"

export default defineConfig({
  cacheDir: "../../../node_modules/.vite",
  test: {
    testTimeout: 20_000,
    // Written for bundlers, which find files without their extensions.
    server: { deps: { inline: [/@hotwired/, /@rails\/actioncable/, /@anycable\/turbo-stream/] } },
  },
})
