// What CloudFront makes of a request and an answer by the policies of a behaviour.
import { createHash } from "node:crypto"

import { none } from "./distribution.mjs"

/** Headers of one connection only, and such as no viewer's value reaches an origin. */
const DROPPED = new Set(
  `connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer upgrade
   expect host x-forwarded-proto x-real-ip x-http-method-override accept-encoding cookie
   content-length transfer-encoding`.split(/\s+/),
)

/** Whether answers are cached at all. */
export const caches = (behaviour) => behaviour.ttl.max > 0

/** Whether those who ask for the same wait for one answer: not where cookies are forwarded. */
export const collapses = ({ key, forward }) => key.cookies === none && forward.cookies === none

/** The encodings that a viewer takes and the cache policy knows, in CloudFront's order. */
export function encodings(behaviour, headers) {
  const accepted = headers
    .filter(([name]) => name === "accept-encoding")
    .flatMap(([, value]) => value.toLowerCase().split(","))
    .map((each) => each.trim())
    .filter((each) => !/;\s*q=0(\.0*)?$/.test(each))
    .map((each) => each.split(";")[0].trim())
  return behaviour.key.encodings.filter((each) => accepted.includes(each))
}

/** The cache key, as a digest. */
export function cacheKey(behaviour, { path, query, headers }) {
  const { key } = behaviour
  const parts = [
    path,
    chosenQuery(query, key.query),
    ...headers
      .filter(([name]) => name !== "accept-encoding" && name !== "cookie" && key.headers(name))
      .map(([name, value]) => `${name}: ${value}`)
      .sort(),
    chosenCookies(headers, key.cookies),
    encodings(behaviour, headers).join(),
  ]
  return createHash("sha256").update(parts.join("\n")).digest("hex")
}

/** What goes to the origin: the URL and the headers by name, without the origin's own. */
export function originRequest(behaviour, { path, query, headers, ip }, id) {
  const { key, forward } = behaviour
  const either = (part) => (name) => key[part](name) || forward[part](name)
  const sent = new Map([["user-agent", ["Amazon CloudFront"]]])
  for (const [name, value] of headers) {
    if (DROPPED.has(name) || name.startsWith("x-edge-") || !either("headers")(name)) continue
    if (name === "user-agent") sent.set(name, [value])
    else sent.set(name, [...(sent.get(name) ?? []), value])
  }
  const accepted = key.encodings.length
    ? encodings(behaviour, headers).join(",")
    : headers.filter(([name]) => name === "accept-encoding" && either("headers")(name)).map(([, value]) => value).join()
  if (accepted) sent.set("accept-encoding", [accepted])
  const cookies = chosenCookies(headers, either("cookies"))
  if (cookies) sent.set("cookie", [cookies])
  if (either("headers")("host")) sent.set("host", headers.filter(([name]) => name === "host").map(([, value]) => value))
  const before = headers.filter(([name]) => name === "x-forwarded-for").map(([, value]) => value)
  sent.set("x-forwarded-for", [[...before, ip].join(", ")])
  sent.set("x-amz-cf-id", [id])
  const kept = chosenQuery(query, either("query"))
  return { url: kept ? `${path}?${kept}` : path, headers: sent }
}

function chosenQuery(query, wanted) {
  return query
    .split("&")
    .filter((part) => part !== "" && wanted(part.split("=")[0]))
    .join("&")
}

function chosenCookies(headers, wanted) {
  return headers
    .filter(([name]) => name === "cookie")
    .flatMap(([, value]) => value.split(/; */))
    .filter((cookie) => wanted(cookie.split("=")[0]))
    .join("; ")
}

const ALWAYS_CACHED_ERRORS = [404, 414, 500, 501, 502, 503, 504]
const CACHED_ERRORS_IF_TOLD = [400, 403, 405, 412, 415]

/**
 * For how many seconds an answer may be given again, and for how many more while another one is
 * fetched; `null` when it may not be.
 */
export function freshness(behaviour, errors, status, headers) {
  const { min, standard, max } = behaviour.ttl
  const directives = cacheControl(headers["cache-control"])
  const private_ = ["no-store", "no-cache", "private"].some((name) => directives.has(name))
  const told = private_ ? undefined : (seconds(directives.get("s-maxage")) ?? seconds(directives.get("max-age")))
  const stale = seconds(directives.get("stale-while-revalidate")) ?? 0
  const lasting = (ttl) => (ttl > 0 ? { ttl, grace: stale } : null)
  if (status >= 400) {
    // The least time for errors is taken to hold even against no-store: the documentation leaves it open.
    if (ALWAYS_CACHED_ERRORS.includes(status)) return lasting(Math.max(errors.get(status) ?? 10, told ?? 0))
    return CACHED_ERRORS_IF_TOLD.includes(status) ? lasting(told ?? 0) : null
  }
  return lasting(private_ ? min : Math.min(Math.max(told ?? standard, min), max))
}

function cacheControl(value = "") {
  return new Map(
    value
      .toLowerCase()
      .split(",")
      .map((each) => each.trim().split("=")),
  )
}

const seconds = (text) => (/^"?\d+"?$/.test(text ?? "") ? Number(text.replaceAll('"', "")) : undefined)
