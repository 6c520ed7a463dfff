import { fileURLToPath } from "node:url"
import { defineConfig } from "vite"

// The same sources give the same bytes, whatever the machine: nothing of the environment is in them.
export default defineConfig({
  root: fileURLToPath(new URL(".", import.meta.url)),
  base: "/",
  envDir: false,
  publicDir: false,
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../layers/core/python/tailrace/console/built",
    emptyOutDir: true,
    target: "es2023",
    cssTarget: ["chrome123", "firefox120", "safari17.5"],
    assetsDir: "console",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    cssCodeSplit: false,
  },
})
