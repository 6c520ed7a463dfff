// What CloudFront does to an answer on its way to the viewer: its headers, and compression.
import { promisify } from "node:util"
import zlib from "node:zlib"

/** Of one connection, or of the cache; `x-varnish` and `via` are Varnish's. */
const DROPPED =
  /^(connection|keep-alive|proxy-.*|trailer|transfer-encoding|upgrade|via|x-varnish|x-edge-.*)$/

/** Headers of an answer by name, as lists, without those that stay inside. */
export function viewerHeaders(raw) {
  const headers = new Map()
  for (let at = 0; at < raw.length; at += 2) {
    const name = raw[at].toLowerCase()
    if (!DROPPED.test(name)) headers.set(name, [...(headers.get(name) ?? []), raw[at + 1]])
  }
  return headers
}

/** Applies a response headers policy; `request` has the viewer's method and headers. */
export function applyPolicy(policy, request, headers) {
  const put = (name, value, override) => {
    if (override || !headers.has(name.toLowerCase())) headers.set(name.toLowerCase(), [String(value)])
  }
  for (const { Header } of policy.RemoveHeadersConfig?.Items ?? []) headers.delete(Header.toLowerCase())
  if (policy.CorsConfig && request.headers.origin !== undefined) cors(policy.CorsConfig, request, put)
  const security = policy.SecurityHeadersConfig ?? {}
  if (security.ContentTypeOptions) put("x-content-type-options", "nosniff", security.ContentTypeOptions.Override)
  if (security.ContentSecurityPolicy) {
    const { ContentSecurityPolicy, Override } = security.ContentSecurityPolicy
    put("content-security-policy", ContentSecurityPolicy, Override)
  }
  if (security.ReferrerPolicy) {
    put("referrer-policy", security.ReferrerPolicy.ReferrerPolicy, security.ReferrerPolicy.Override)
  }
  if (security.FrameOptions) put("x-frame-options", security.FrameOptions.FrameOption, security.FrameOptions.Override)
  if (security.StrictTransportSecurity) {
    const { AccessControlMaxAgeSec, IncludeSubdomains, Preload, Override } = security.StrictTransportSecurity
    const parts = [`max-age=${AccessControlMaxAgeSec}`, IncludeSubdomains && "includeSubDomains", Preload && "preload"]
    put("strict-transport-security", parts.filter(Boolean).join("; "), Override)
  }
  for (const { Header, Value, Override } of policy.CustomHeadersConfig?.Items ?? []) put(Header, Value, Override)
}

function cors(config, request, put) {
  const given = (name, value) => put(`access-control-${name}`, value, config.OriginOverride)
  const list = (items) => items?.Items?.join(", ")
  const origins = config.AccessControlAllowOrigins.Items
  const origin = origins.includes("*") ? "*" : origins.find((each) => each === request.headers.origin)
  if (origin === undefined) return
  given("allow-origin", origin)
  if (config.AccessControlAllowCredentials) given("allow-credentials", "true")
  if (request.method !== "OPTIONS" || request.headers["access-control-request-method"] === undefined) {
    if (config.AccessControlExposeHeaders) given("expose-headers", list(config.AccessControlExposeHeaders))
    return
  }
  const methods = list(config.AccessControlAllowMethods)
  given("allow-methods", methods === "ALL" ? "GET, HEAD, PUT, POST, DELETE, OPTIONS, PATCH" : methods)
  given("allow-headers", list(config.AccessControlAllowHeaders))
  if (config.AccessControlMaxAgeSec !== undefined) given("max-age", config.AccessControlMaxAgeSec)
}

const COMPRESSED_TYPES = new Set(
  `application/dash+xml application/eot application/font application/font-sfnt application/javascript
   application/json application/opentype application/otf application/pkcs7-mime application/protobuf
   application/rss+xml application/truetype application/ttf application/vnd.apple.mpegurl
   application/vnd.ms-fontobject application/xhtml+xml application/xml application/x-font-opentype
   application/x-font-truetype application/x-font-ttf application/x-httpd-cgi application/x-javascript
   application/x-mpegurl application/x-opentype application/x-otf application/x-perl application/x-ttf
   font/eot font/opentype font/otf font/ttf image/svg+xml text/css text/csv text/html text/javascript
   text/js text/plain text/richtext text/tab-separated-values text/xml text/x-component
   text/x-java-source text/x-script vnd.apple.mpegurl`.split(/\s+/),
)
const LEAST_BYTES = 1_000
const MOST_BYTES = 10_000_000

/** The encoding in which CloudFront gives this answer to one who takes `accepted`, if in any. */
export function edgeEncoding(accepted, status, headers) {
  const length = Number(headers.get("content-length")?.[0] ?? Number.NaN)
  const type = headers.get("content-type")?.[0].split(";")[0].trim().toLowerCase() ?? ""
  const fits = length >= LEAST_BYTES && length <= MOST_BYTES && COMPRESSED_TYPES.has(type)
  return [200, 403, 404].includes(status) && fits && !headers.has("content-encoding") ? accepted[0] : undefined
}

const brotli = promisify(zlib.brotliCompress)
const gzip = promisify(zlib.gzip)

/** Makes the headers those of the encoded answer; its length is not known yet. */
export function encode(encoding, headers) {
  headers.delete("content-length")
  headers.set("content-encoding", [encoding])
  headers.set("vary", [...(headers.get("vary") ?? []), "Accept-Encoding"])
  const tag = headers.get("etag")?.[0]
  if (tag?.startsWith('"')) headers.set("etag", [`W/${tag}`])
  else if (tag !== undefined && !tag.startsWith("W/")) headers.delete("etag")
}

export const compress = (encoding, body) =>
  encoding === "br" ? brotli(body, { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 4 } }) : gzip(body)

/** Whether a viewer has this answer already, by its If-None-Match. */
export function holds(request, headers) {
  const tag = headers.get("etag")?.[0]
  const opaque = (text) => text.trim().replace(/^W\//, "")
  return request
    .filter(([name]) => name === "if-none-match")
    .flatMap(([, value]) => value.split(","))
    .some((held) => tag !== undefined && (held.trim() === "*" || opaque(held) === opaque(tag)))
}
