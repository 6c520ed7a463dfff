// CloudFront Functions on Node: the globals and modules of the JavaScript runtime 2.0 and no others.
import crypto from "node:crypto"
import querystring from "node:querystring"
import vm from "node:vm"

import { checkedRequest, checkedResponse } from "./viewer_event.mjs"

export const MAX_BYTES = 10_240

/** What the documentation of the runtime names; anything else of V8 is taken away. */
const GLOBALS = new Set(
  `Array ArrayBuffer Boolean DataView Date Error EvalError Float32Array Float64Array Function Infinity
   Int16Array Int32Array Int8Array JSON Math NaN Number Object Promise RangeError ReferenceError RegExp
   String Symbol SyntaxError TypeError URIError Uint16Array Uint32Array Uint8Array Uint8ClampedArray
   decodeURI decodeURIComponent encodeURI encodeURIComponent globalThis isFinite isNaN parseFloat
   parseInt undefined`.split(/\s+/),
)

export class ExecutionError extends Error {} // CloudFront answers 503

/**
 * The function in `code`, for a distribution with these origin ids; `store` gives its key-value store,
 * null where it has none, and `now` the time in milliseconds. `run(event)` gives
 * `{ request, origin }`, where `origin` is what the function chose, if it did, or `{ response }`.
 */
export function loadFunction(code, { origins = [], store = () => null, now = Date.now } = {}) {
  const size = Buffer.byteLength(code)
  if (size > MAX_BYTES) throw new Error(`the function has ${size} bytes, more than ${MAX_BYTES}`)
  const imports = []
  const body = code.replace(/^import (\w+) from '(\w+)';$/gm, (_, name, module) => {
    imports.push([name, module])
    return ""
  })
  if (imports.some(([, module]) => module === "cloudfront") && !code.startsWith("import ")) {
    throw new Error("the import of 'cloudfront' must be in the first line")
  }
  const context = newContext(now)
  const source = `(function (require, ${imports.map(([name]) => name)}) {"use strict";${body}
    return function (event) { return handler(JSON.parse(event)) } })`
  const factory = new vm.Script(source, { filename: "viewer_request.js" }).runInContext(context)

  async function run(event) {
    const choice = {}
    const modules = { cloudfront: cloudfront(choice, origins, store), ...PLAIN_MODULES }
    // Anew for each request: nothing that a function keeps outlives one.
    const handler = factory(requirer(modules), ...imports.map(([, name]) => modules[name]))
    let result
    try {
      result = JSON.parse(JSON.stringify((await handler(JSON.stringify(event))) ?? null))
    } catch (error) {
      throw new ExecutionError(`the function failed: ${error?.stack ?? error}`)
    }
    if (result !== null && typeof result === "object" && "statusCode" in result) {
      return { response: checkedResponse(result) }
    }
    return { request: checkedRequest(result, event.request), origin: choice.origin }
  }
  return { run, size }
}

function newContext(now) {
  const context = vm.createContext({}, { codeGeneration: { strings: false, wasm: false } })
  const globals = vm.runInContext("globalThis", context)
  for (const name of vm.runInContext("Object.getOwnPropertyNames(globalThis)", context)) {
    if (!GLOBALS.has(name)) delete globals[name]
  }
  globals.Date.now = now
  return Object.assign(context, { console: { log() {} }, atob, btoa, TextEncoder, TextDecoder })
}

const PLAIN_MODULES = {
  crypto: { createHash: crypto.createHash, createHmac: crypto.createHmac },
  querystring: { ...querystring },
  buffer: { Buffer },
}

function requirer(modules) {
  return (name) => {
    if (!Object.hasOwn(PLAIN_MODULES, name)) throw new Error(`there is no module '${name}'`)
    return modules[name]
  }
}

/** The module `cloudfront`; what the function says about origins goes to `choice`. */
function cloudfront(choice, origins, store) {
  const known = (id) => {
    if (!origins.includes(id)) throw new Error(`the distribution has no origin '${id}'`)
    return id
  }
  return {
    selectRequestOriginById: (id) => {
      choice.origin = known(id)
    },
    updateRequestOrigin: () => {
      throw new Error("updateRequestOrigin is not part of this stand-in")
    },
    createRequestOriginGroup: () => {
      throw new Error("createRequestOriginGroup is not part of this stand-in")
    },
    kvs: () => {
      const found = store()
      if (found === null) throw new Error("no key-value store is associated with the function")
      return {
        get: async (key, { format = "string" } = {}) => {
          if (!Object.hasOwn(found, key)) throw new Error("KeyNotFound")
          return format === "json" ? JSON.parse(found[key]) : found[key]
        },
        exists: async (key) => Object.hasOwn(found, key),
        count: async () => Object.keys(found).length,
      }
    },
  }
}
