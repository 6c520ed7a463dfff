// The event of CloudFront Functions, to and from HTTP, and the checks that CloudFront makes on what a
// function returns.
import crypto from "node:crypto"
import { isDeepStrictEqual } from "node:util"

/** Not shown to functions, and not to be added by them. */
const HIDDEN = new RegExp(
  `^(connection|expect|keep-alive|proxy-(authenticate|authorization|connection)|trailer|upgrade|
  x-accel-.*|x-amz-cf-.*|x-amzn-.*|x-cache|x-edge-.*|x-forwarded-proto|x-real-ip)$`.replace(/\s/g, ""),
)
const READ_ONLY = ["content-length", "host", "transfer-encoding", "via"]
const RESPONSE_READ_ONLY = ["content-length", "transfer-encoding", "via", "warning"]
const MAX_URL = 8_192

export class ValidationError extends Error {} // CloudFront answers 502

/**
 * The event for an HTTP request `{ method, path, query, headers, ip }`: path and query as they came,
 * headers as pairs.
 */
export function toEvent({ method, path, query = "", headers = [], ip = "127.0.0.1" }, context = {}) {
  const shown = headers.filter(([name]) => !HIDDEN.test(name.toLowerCase()))
  const isCookie = ([name]) => name.toLowerCase() === "cookie"
  const cookies = shown.filter(isCookie).flatMap(([, value]) => value.split(/; */))
  return {
    version: "1.0",
    context: {
      distributionDomainName: "d111111abcdef8.cloudfront.net",
      distributionId: "EDFDVBD6EXAMPLE",
      eventType: "viewer-request",
      requestId: crypto.randomBytes(36).toString("base64url"),
      ...context,
    },
    viewer: { ip },
    request: {
      method,
      uri: path,
      querystring: fields(query.split("&").filter(Boolean).map(cut)),
      headers: fields(
        shown.filter((each) => !isCookie(each)).map(([name, value]) => [name.toLowerCase(), value]),
      ),
      cookies: fields(cookies.filter(Boolean).map(cut)),
    },
  }
}

/**
 * The event for an answer on its way to the viewer. `request` is as the viewer-request function left
 * it, `headers` are by name, as lists.
 */
export function toResponseEvent(request, { statusCode, statusMessage }, headers, context = {}) {
  const event = toEvent(request, { eventType: "viewer-response", ...context })
  const shown = [...headers].filter(([name]) => !HIDDEN.test(name))
  event.response = {
    statusCode,
    statusDescription: statusMessage,
    headers: fields(shown.flatMap(([name, values]) => values.map((value) => [name, value]))),
    cookies: {},
  }
  return event
}

/** The headers of an answer after the function, by name, as lists; `was` are those before. */
export function responseHeaders(response, was) {
  const headers = new Map([...was].filter(([name]) => HIDDEN.test(name)))
  for (const [name, value] of response.headers) headers.set(name, [...(headers.get(name) ?? []), value])
  for (const name of RESPONSE_READ_ONLY) {
    check(isDeepStrictEqual(headers.get(name), was.get(name)), `the header ${name} is read-only`)
  }
  return headers
}

/** The HTTP request that CloudFront goes on with, in the form that `toEvent` takes. */
export function fromRequest(request, original, query) {
  const was = original.request
  const changed = !isDeepStrictEqual(request.querystring, was.querystring)
  const cookies = pairs(request.cookies, was.cookies).map(joined)
  const headers = pairs(request.headers, was.headers)
  return {
    method: request.method,
    path: request.uri,
    // What no function has touched goes on as it came.
    query: changed ? queryText(request.querystring, was.querystring) : query,
    headers: cookies.length ? [...headers, ["cookie", cookies.join("; ")]] : headers,
    ip: original.viewer.ip,
  }
}

function queryText(querystring, was) {
  return typeof querystring === "string"
    ? querystring
    : pairs(querystring, was).map(joined).join("&")
}

const joined = ([name, value]) => (value === "" ? name : `${name}=${value}`)

function cut(text) {
  const at = text.indexOf("=")
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)]
}

/** A name that comes once has a value; one that comes again has all of them in `multiValue`. */
function fields(given) {
  const found = new Map()
  for (const [name, value] of given) {
    const field = found.get(name)
    if (field === undefined) found.set(name, { value })
    else (field.multiValue ??= [{ value: field.value }]).push({ value })
  }
  return Object.fromEntries(found)
}

/** The reverse: a changed `multiValue` counts, else a changed `value` replaces the first one. */
function pairs(fields, was = {}) {
  return Object.entries(fields).flatMap(([name, { value, multiValue }]) => {
    if (!multiValue) return [[name, value]]
    const values = multiValue.map((each) => each.value)
    const same = isDeepStrictEqual(multiValue, was[name]?.multiValue)
    return (same ? [value, ...values.slice(1)] : values).map((each) => [name, each])
  })
}

export function checkedRequest(request, was) {
  check(request !== null && typeof request === "object", "the function returned nothing")
  const { method, uri, querystring, headers, cookies } = request
  check(method === was.method, "the method is read-only")
  check(typeof uri === "string" && uri.startsWith("/"), "a URI begins with /")
  checkFields(cookies, "cookies")
  checkFields(headers, "headers")
  if (typeof querystring !== "string") checkFields(querystring, "querystring")
  const query = queryText(querystring)
  check(!/[\s\x00-\x1f\x7f#]/.test(query), "a query string has no spaces, control characters or #")
  check(uri.length + query.length < MAX_URL, `a URI has less than ${MAX_URL} characters`)
  for (const name of Object.keys(headers)) {
    check(name === name.toLowerCase(), `the header ${name} is not in lower case`)
    check(!HIDDEN.test(name), `a function cannot add the header ${name}`)
  }
  for (const name of READ_ONLY) {
    check(isDeepStrictEqual(headers[name], was.headers[name]), `the header ${name} is read-only`)
  }
  return request
}

export function checkedResponse(response) {
  const { statusCode, headers = {}, body = "" } = response
  check(Number.isInteger(statusCode) && statusCode >= 200 && statusCode < 600, "no such statusCode")
  checkFields(headers, "headers")
  const text = typeof body === "string" ? { encoding: "text", data: body } : body
  check(["text", "base64"].includes(text.encoding), "the body's encoding is text or base64")
  return {
    status: statusCode,
    headers: pairs(headers),
    body: Buffer.from(text.data, text.encoding === "text" ? "utf8" : "base64"),
  }
}

function checkFields(fields, what) {
  check(fields !== null && typeof fields === "object", `${what} must be an object`)
  for (const [name, field] of Object.entries(fields)) {
    const all = field?.multiValue ?? [field]
    const plain = all.every((each) => typeof each?.value === "string")
    check(plain, `${what}: ${name} must have a text as its value`)
  }
}

function check(holds, message) {
  if (!holds) throw new ValidationError(message)
}
