// Starts the reference server. Usage: node reference.mjs NODE_MODULES [DATA_DIR]
import { createRequire } from "node:module"
import { resolve } from "node:path"
import { pathToFileURL } from "node:url"

const [nodeModules, dataDir] = process.argv.slice(2)
const require = createRequire(pathToFileURL(resolve(nodeModules, "..", "package.json")))
const { DurableStreamTestServer } = require("@durable-streams/server")

const server = new DurableStreamTestServer({ port: 0, host: "127.0.0.1", dataDir })
console.log(await server.start())
