// CloudFront on loopback: `node devtools/local_aws/edge.mjs config.json`. docs/edge.md says what it stands for.
//
//   viewer -> front -> Varnish -> back -> origin       what may be cached: GET and HEAD
//   viewer -> front ---------------------> origin       all else, and WebSockets
//
// Varnish keeps answers and lets those wait together who ask for the same; the rest is here. The
// headers `x-edge-*` are between these three, and CloudFront, too, takes them from viewers.
import { randomBytes } from "node:crypto"
import { once } from "node:events"
import { readFileSync } from "node:fs"
import http from "node:http"
import { buffer } from "node:stream/consumers"
import { pipeline } from "node:stream/promises"

import { fromRequest, responseHeaders, toEvent, toResponseEvent, ValidationError } from "./viewer_event.mjs"
import { ExecutionError, loadFunction } from "./viewer_runtime.mjs"
import { applyPolicy, compress, edgeEncoding, encode, holds, viewerHeaders } from "./answers.mjs"
import { readDistribution } from "./distribution.mjs"
import { cacheKey, caches, collapses, encodings, freshness, originRequest } from "./policies.mjs"

const VIA = "1.1 0123456789abcdef0123456789abcdef.cloudfront.net (CloudFront)"
const METHODS = ["GET", "HEAD", "OPTIONS", "PUT", "POST", "PATCH", "DELETE"]
const MAX_URL = 8_192
const MAX_REQUEST = 20_480
const WRITE_SECONDS = 30

const config = JSON.parse(readFileSync(process.argv[2], "utf8"))
const { behaviours, origins, errors } = readDistribution(config.template, config.origins)
// Each request reads it anew, as CloudFront's key-value store changes without a deployment.
const readStore = () => JSON.parse(readFileSync(config.store, "utf8"))
for (const behaviour of behaviours) {
  const options = { origins: [...origins.keys()], store: behaviour.hasStore ? readStore : () => null }
  behaviour.viewerRequest = behaviour.code && loadFunction(behaviour.code, options)
  behaviour.viewerResponse = behaviour.responseCode && loadFunction(behaviour.responseCode)
}
const toCache = new http.Agent({ keepAlive: true, noDelay: true })
// An origin may close a connection just when it is used again, and a body cannot be sent twice.
const toOrigin = new http.Agent({ noDelay: true })

/** An answer that is CloudFront's own. */
class Refusal extends Error {
  constructor(status, body, headers = []) {
    super(`${status} ${body}`)
    Object.assign(this, { status, body, headers })
  }
}

/** What becomes of a viewer's request: its behaviour, and what goes to which origin. */
async function routed(request) {
  const id = randomBytes(41).toString("base64url")
  const viewer = viewerOf(request)
  const behaviour = behaviours.find((each) => each.matches(viewer.path))
  admit(request, viewer, behaviour)
  const [changed, origin] = await runFunction(behaviour, viewer, id)
  return { id, behaviour, changed, origin, ...originRequest(behaviour, changed, id) }
}

/** Answers a viewer. */
async function front(request, response) {
  const { id, behaviour, changed, origin, url, headers } = await routed(request)
  const cached = config.cache && caches(behaviour) && ["GET", "HEAD"].includes(request.method)
  const upstream = cached
    ? askCache(request.method, url, headers, {
        "x-edge-key": cacheKey(behaviour, changed),
        "x-edge-collapse": collapses(behaviour) ? "yes" : "no",
        "x-edge-behaviour": behaviours.indexOf(behaviour),
        "x-edge-origin": origin,
      })
    : askOrigin(request.method, url, headers, origins.get(origin))
  const answer = await answerTo(upstream, request, response)
  const sent = await headersFor(request, behaviour, answer, changed, id)
  const accepted = behaviour.compress && request.method === "GET" ? encodings(behaviour, changed.headers) : []
  const encoding = edgeEncoding(accepted, answer.statusCode, sent)
  if (encoding) encode(encoding, sent)
  if (cached && answer.statusCode === 200 && holds(changed.headers, sent)) {
    answer.resume()
    response.writeHead(304, Object.fromEntries(sent)).end()
  } else if (encoding) {
    const body = await compress(encoding, await buffer(answer))
    sent.set("content-length", [String(body.length)])
    response.writeHead(answer.statusCode, Object.fromEntries(sent)).end(body)
  } else {
    await deliver(response, answer, sent)
  }
}

/** A WebSocket: after the handshake whatever comes from one side goes to the other. */
async function tunnel(request, socket, head) {
  const { origin, url, headers } = await routed(request)
  headers.set("connection", ["Upgrade"]).set("upgrade", [request.headers.upgrade])
  const upstream = askOrigin("GET", url, headers, origins.get(origin))
  socket.on("close", () => upstream.destroy())
  upstream.end()
  const [answer, other, first] = await Promise.race([once(upstream, "upgrade"), once(upstream, "response")])
  const fields = answer.rawHeaders.map((text, at) => (at % 2 ? `${text}\r\n` : `${text}: `)).join("")
  socket.write(`HTTP/1.1 ${answer.statusCode} ${answer.statusMessage}\r\n${fields}\r\n`)
  if (!other) return answer.pipe(socket)
  other.setTimeout(0)
  socket.setNoDelay(true)
  other.setNoDelay(true)
  socket.write(first)
  other.write(head)
  for (const [one, another] of [[socket, other], [other, socket]]) {
    one.on("error", () => another.destroy())
    one.on("close", () => another.destroy())
    one.pipe(another)
  }
}

/** What the viewer gets of the answer's headers, and CloudFront's own. */
async function headersFor(request, behaviour, answer, changed, id) {
  let headers = viewerHeaders(answer.rawHeaders)
  const hit = Number(answer.headers["x-edge-hits"] ?? 0) > 0
  if (!hit) headers.delete("age")
  if (collapses(behaviour)) headers.delete("set-cookie")
  applyPolicy(behaviour.responseHeaders, request, headers)
  // Not for errors.
  if (behaviour.viewerResponse && answer.statusCode < 400) {
    const event = toResponseEvent(changed, answer, headers, { requestId: id })
    const { response } = await execute(behaviour.viewerResponse, event)
    headers = responseHeaders(response, headers)
  }
  const outcome = answer.statusCode >= 400 ? "Error" : hit ? "Hit" : "Miss"
  return headers
    .set("x-cache", [`${outcome} from cloudfront`])
    .set("via", [VIA])
    .set("x-amz-cf-id", [id])
}

function viewerOf(request) {
  const [, path, query = ""] = /^([^?]*)\??(.*)$/s.exec(request.url)
  const headers = []
  for (let at = 0; at < request.rawHeaders.length; at += 2) {
    headers.push([request.rawHeaders[at].toLowerCase(), request.rawHeaders[at + 1]])
  }
  return { method: request.method, path, query, headers, ip: request.socket.remoteAddress ?? "" }
}

/** Refuses what CloudFront refuses by itself. */
function admit(request, { path }, behaviour) {
  const size = request.rawHeaders.reduce((total, text) => total + text.length + 2, request.url.length)
  if (request.url.length > MAX_URL || size > MAX_REQUEST) {
    throw new Refusal(413, "the request is too large", [["connection", "close"]])
  }
  if (!path.startsWith("/")) throw new Refusal(400, "not a path")
  if (!METHODS.includes(request.method)) throw new Refusal(405, "no such method")
  if (!behaviour.methods.includes(request.method)) throw new Refusal(403, "the method is not allowed")
  if (request.method === "GET" && hasBody(request)) throw new Refusal(403, "a GET has no body")
}

const hasBody = ({ headers }) =>
  headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) > 0

/** The request after the viewer-request function, and the id of its origin. */
async function runFunction(behaviour, viewer, requestId) {
  if (!behaviour.viewerRequest) return [viewer, behaviour.origin]
  const event = toEvent(viewer, { requestId })
  const result = await execute(behaviour.viewerRequest, event)
  if (result.response) {
    const { status, body, headers } = result.response
    throw new Refusal(status, body, [...headers, ["x-cache", "FunctionGeneratedResponse from cloudfront"]])
  }
  return [fromRequest(result.request, event, viewer.query), result.origin ?? behaviour.origin]
}

async function execute(edgeFunction, event) {
  try {
    return await edgeFunction.run(event)
  } catch (error) {
    console.error(error)
    if (error instanceof ExecutionError) throw new Refusal(503, "the function failed")
    if (error instanceof ValidationError) throw new Refusal(502, "the function returned nonsense")
    throw error
  }
}

function askCache(method, url, headers, instructions) {
  // Varnish would add to the one, and knows no lists in the other.
  const forwarded = headers.get("x-forwarded-for")
  headers.delete("x-forwarded-for")
  headers.delete("if-none-match")
  return http.request({
    agent: toCache,
    host: "127.0.0.1",
    port: config.cache.port,
    method,
    path: url,
    headers: { host: "edge", ...Object.fromEntries(headers), "x-edge-forwarded-for": forwarded, ...instructions },
  })
}

function askOrigin(method, url, headers, origin) {
  const { host, port, prefix, readSeconds } = origin
  const seconds = ["GET", "HEAD"].includes(method) ? readSeconds : WRITE_SECONDS
  const upstream = http.request({
    agent: toOrigin,
    host,
    port,
    method,
    path: prefix + url,
    headers: { host: `${host}:${port}`, ...Object.fromEntries(headers), via: VIA, ...Object.fromEntries(origin.headers) },
    timeout: seconds * 1_000,
  })
  upstream.on("timeout", () => upstream.destroy(new Refusal(504, `the origin said nothing for ${seconds} seconds`)))
  return upstream
}

/** Sends the request on, and gives the answer; who leaves is not asked for any longer. */
async function answerTo(upstream, request, response) {
  response.on("close", () => upstream.destroy())
  // An origin may answer, and close, before it has read the body; the viewer goes on sending it.
  upstream.on("error", () => {})
  upstream.on("close", () => request.unpipe(upstream).resume())
  for (const name of ["content-length", "transfer-encoding"]) {
    if (request.headers[name] !== undefined) upstream.setHeader(name, request.headers[name])
  }
  request.pipe(upstream)
  try {
    const [answer] = await once(upstream, "response")
    return answer
  } catch (error) {
    throw error instanceof Refusal ? error : new Refusal(502, `the origin cannot be reached: ${error.message}`)
  }
}

async function deliver(response, answer, headers) {
  response.writeHead(answer.statusCode, Object.fromEntries(headers)).flushHeaders()
  await pipeline(answer, response)
}

/** Answers Varnish: from the origin, with how long that may be kept. */
async function back(request, response) {
  const behaviour = behaviours[Number(request.headers["x-edge-behaviour"])]
  const headers = new Map()
  for (const [name, value] of viewerOf(request).headers) {
    if (!/^(host|connection|x-varnish|x-forwarded-for|x-edge-.*)$/.test(name)) {
      headers.set(name, [...(headers.get(name) ?? []), value])
    }
  }
  headers.set("x-forwarded-for", [request.headers["x-edge-forwarded-for"]])
  const upstream = askOrigin(request.method, request.url, headers, origins.get(request.headers["x-edge-origin"]))
  const answer = await answerTo(upstream, request, response)
  const fresh = freshness(behaviour, errors, answer.statusCode, answer.headers)
  const sent = viewerHeaders(answer.rawHeaders)
  sent.set("x-edge-ttl", [fresh ? `${fresh.ttl}s` : "none"]).set("x-edge-grace", [`${fresh?.grace ?? 0}s`])
  await deliver(response, answer, sent)
}

/** A server on loopback in which `serve` answers, or throws a refusal. */
async function listen(serve, port) {
  const server = http.createServer({ keepAliveTimeout: 0, maxHeaderSize: 65_536, requestTimeout: 0, noDelay: true })
  server.on("request", async (request, response) => {
    try {
      await serve(request, response)
    } catch (error) {
      refuse(error, request, response)
    }
  })
  server.on("upgrade", async (request, socket, head) => {
    socket.on("error", () => {})
    try {
      await tunnel(request, socket, head)
    } catch (error) {
      const status = error instanceof Refusal ? error.status : 502
      socket.end(`HTTP/1.1 ${status} ${http.STATUS_CODES[status]}\r\nconnection: close\r\n\r\n`)
    }
  })
  server.listen({ host: "127.0.0.1", port, backlog: 4_096 })
  await once(server, "listening")
  return server.address().port
}

function refuse(error, request, response) {
  if (response.headersSent || response.destroyed) {
    // The answer broke off: the viewer must see that, too.
    response.destroy()
    return
  }
  const { status, body, headers } = error instanceof Refusal ? error : new Refusal(500, String(error.stack))
  request.resume()
  const own = { "x-cache": "Error from cloudfront", via: VIA }
  response.writeHead(status, { ...own, ...Object.fromEntries(headers) }).end(body)
}

if (config.cache) await listen(back, config.cache.backend)
const port = await listen(front, config.port ?? 0)
console.log(`ready on http://127.0.0.1:${port}`)
process.on("SIGTERM", () => process.exit(0))
