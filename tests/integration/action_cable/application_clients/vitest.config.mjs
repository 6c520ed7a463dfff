import { defineConfig } from "vitest/config"

export default defineConfig({
  cacheDir: "../../../../node_modules/.vite",
  test: {
    // Safety nets: nothing here is about speed.
    testTimeout: 600_000,
    hookTimeout: 600_000,
    // Written for bundlers, which find files without their extensions.
    server: { deps: { inline: [/@hotwired/, /@rails\/actioncable/, /@anycable\/turbo-stream/] } },
  },
})
