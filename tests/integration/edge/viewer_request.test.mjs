// The viewer-request function as CloudFront would run it: npx vitest run --root tests/edge
import fc from "fast-check"
import { createHmac } from "node:crypto"
import { describe, expect, it } from "vitest"

import { code, responseCode } from "./code.mjs"
import { fromRequest, responseHeaders, toEvent, toResponseEvent } from "../../../devtools/local_aws/viewer_event.mjs"
import { loadFunction } from "../../../devtools/local_aws/viewer_runtime.mjs"

/** In the thousandth interval of 20 s. */
const NOW = 1_728_432_000_000 + 1_000 * 20_000 + 7
const options = { origins: ["http", "wait", "live"], now: () => NOW }
const open = loadFunction(code("open"), options)
const elsewhere = (dsPath) => loadFunction(code("open", dsPath), options)

const HOST = "streams.example.com"
const TOKEN = "3141000000000007_0000000000000123"
const STREAM = "/v1/stream/a/b"
const SECOND = "/ds/a/b"

/** What CloudFront goes on with: method, path, query, headers by name, and the origin's id. */
async function edge(target, { method = "GET", headers = {}, id = "request-1", through = open } = {}) {
  const [path, ...rest] = target.split("?")
  const query = rest.join("?")
  const given = Object.entries({ host: HOST, ...headers }).flatMap(([name, value]) =>
    [value].flat().map((each) => [name, each]),
  )
  const event = toEvent({ method, path, query, headers: given }, { requestId: id })
  const { request, origin = "http", response } = await through.run(event)
  if (response) return { response }
  const sent = fromRequest(request, event, query)
  const url = sent.query === "" ? sent.path : `${sent.path}?${sent.query}`
  return { url, origin, headers: Object.fromEntries(sent.headers) }
}

const urlOf = async (target, options) => (await edge(target, options)).url
const queryOf = async (query, path = STREAM, options) => (await urlOf(`${path}?${query}`, options)).slice(path.length)

describe("the query of a read", () => {
  it.each([
    ["has offset, live and cursor in this order", `cursor=12&live=sse&offset=${TOKEN}`, `?offset=${TOKEN}&live=sse&cursor=12`],
    ["loses every other parameter", `a=1&offset=${TOKEN}&signed=x--y&jid=z&b`, `?offset=${TOKEN}`],
    ["keeps no cursor of a catch-up read", `offset=${TOKEN}&cursor=12`, `?offset=${TOKEN}`],
    ["keeps no cursor where live is unknown", "offset=-1&live=ws&cursor=12", "?offset=-1&live=ws"],
    ["keeps a cursor of 15 digits", `offset=now&live=sse&cursor=${"9".repeat(15)}`, `?offset=now&live=sse&cursor=${"9".repeat(15)}`],
    ["loses a cursor of 16 digits", `offset=now&live=sse&cursor=${"9".repeat(16)}`, "?offset=now&live=sse"],
    ["loses a cursor that is no number", "offset=now&live=sse&cursor=x1", "?offset=now&live=sse"],
    ["loses a cursor of other digits than 0 to 9", "offset=now&live=sse&cursor=%D9%A3", "?offset=now&live=sse"],
    ["loses an empty cursor", "offset=now&live=sse&cursor=", "?offset=now&live=sse"],
    ["loses an empty live", `offset=${TOKEN}&live=`, `?offset=${TOKEN}`],
    ["loses a live without =", `offset=${TOKEN}&live`, `?offset=${TOKEN}`],
    ["loses the offset -1 of a catch-up read", "offset=-1", ""],
    ["keeps the offset -1 of a live read", "offset=-1&live=long-poll", "?offset=-1&live=long-poll&cursor=1000"],
    ["keeps an empty offset, which the app refuses", "offset=", "?offset="],
    ["keeps repeated offsets, which the app refuses", "offset=-1&live=sse&offset=now", "?offset=-1&offset=now&live=sse"],
    ["keeps the offset -1 where it is repeated", "offset=-1&offset=-1", "?offset=-1&offset=-1"],
    ["takes the last live", "offset=now&live=sse&live=long-poll", "?offset=now&live=long-poll&cursor=1000"],
    ["takes the last live even if it is empty", "offset=now&live=sse&live=", "?offset=now"],
    ["takes the last cursor", "cursor=1&offset=now&live=sse&cursor=2", "?offset=now&live=sse&cursor=2"],
    ["has one spelling of a value", "offset=%6Eow&live=long%2Dpoll&cursor=%31", "?offset=now&live=long-poll&cursor=1000"],
    ["has one spelling of an offset", `offset=%33${TOKEN.slice(1).replace("_", "%5F")}`, `?offset=${TOKEN}`],
    ["has one spelling of a name", "%6Fffset=now", "?offset=now"],
    ["keeps a broken encoding broken", "offset=%zz&live=%", "?offset=%25zz&live=%25"],
    ["keeps last and since, behind an offset", "live=sse&since=5&last=2", "?last=2&since=5&live=sse"],
    ["keeps every offset, last and since, which the app refuses", "last=2&last=&offset=-1", "?offset=-1&last=2&last="],
    ["has one spelling of an instant", "since=2030-01-31T12%3A00:00+01:00", "?since=2030-01-31T12%3A00%3A00%2001%3A00"],
    ["has no live=false", "last=1&live=false", "?last=1"],
    ["survives names that every object has", "constructor=1&__proto__=2&hasOwnProperty=3", ""],
  ])("%s", async (_, given, wanted) => {
    expect(await queryOf(given)).toBe(wanted)
  })

  const values = {
    offset: fc.constantFrom("-1", "now", TOKEN, "", "0", "7", "%2D1", "n%6Fw", "%zz", "a+b"),
    last: fc.constantFrom("1", "10", ""),
    since: fc.constantFrom("0", "2030-01-31T12:00:00+01:00", "%30"),
    live: fc.constantFrom("sse", "long-poll", "", "ws", "false", "%73se", "long%2dpoll", "fals%65"),
    cursor: fc.constantFrom("1", "123456", "1000", "1001", "x", "", "9".repeat(19), "%31"),
    other: fc.constantFrom("1", "", "offset", "%26"),
  }
  const parameter = fc
    .constantFrom("offset", "last", "since", "live", "cursor", "signed", "toString")
    .chain((name) => {
      const of = Object.hasOwn(values, name) ? values[name] : values.other
      return of.map((value) => `${name}=${value}`)
    })
  const queries = fc.array(parameter, { maxLength: 6 })
  const holds = (property) => fc.assert(property, { numRuns: 500 })

  it("is normalised once and for all", () =>
    holds(
      fc.asyncProperty(queries, async (parts) => {
        const once = await queryOf(parts.join("&"))
        expect(await queryOf(once.slice(1))).toBe(once)
      }),
    ))

  it("does not depend on the order in which different parameters came", () =>
    holds(
      fc.asyncProperty(
        fc.uniqueArray(parameter, { selector: (part) => part.split("=")[0] }),
        fc.infiniteStream(fc.nat()),
        async (parts, ranks) => {
          const shuffled = parts
            .map((part) => [ranks.next().value, part])
            .sort(([a], [b]) => a - b)
            .map(([, part]) => part)
          expect(await queryOf(shuffled.join("&"))).toBe(await queryOf(parts.join("&")))
        },
      ),
    ))
})

describe("shared server-sent events", () => {
  const shared = { through: loadFunction(code("open", "/ds", 20, "shared"), options), headers: {} }

  it("have the key of a long-poll, and no reader", async () => {
    const { url, origin, headers } = await edge(`${STREAM}?offset=${TOKEN}&live=sse&cursor=5000`, shared)
    expect([url, origin]).toEqual([`${STREAM}?offset=${TOKEN}&live=sse&cursor=1001`, "live"])
    expect(headers["x-tailrace-cursor"]).toBe("5000")
    expect(headers).not.toHaveProperty("x-tailrace-reader")
  })

  it("begin behind the last event", async () => {
    const resumed = { ...shared, headers: { "last-event-id": TOKEN } }
    expect(await urlOf(`${STREAM}?offset=-1&live=sse`, resumed)).toBe(`${STREAM}?offset=${TOKEN}&live=sse&cursor=1000`)
  })

  it("are not shared by last and since", async () => {
    const { headers } = await edge(`${STREAM}?last=5&live=sse`, shared)
    expect(headers["x-tailrace-reader"]).toBe("request-1")
  })
})

describe("the cursor of a long-poll", () => {
  const through = (wait) => loadFunction(code("open", "/ds", wait), options)
  const sent = (cursor, wait = 20) => edge(`${STREAM}?offset=now&live=long-poll${cursor}`, { through: through(wait) })

  it.each([
    ["", 1000],
    ["&cursor=", 1000],
    ["&cursor=999", 1000],
    ["&cursor=1000", 1000],
    ["&cursor=1001", 1001],
    ["&cursor=1002", 1001],
    [`&cursor=${"9".repeat(15)}`, 1001],
    [`&cursor=${"9".repeat(16)}`, 1000],
    ["&cursor=x", 1000],
  ])("%s becomes one of two in the key", async (given, wanted) => {
    expect((await sent(given)).url).toBe(`${STREAM}?offset=now&live=long-poll&cursor=${wanted}`)
    const interval = Math.floor(20_000 / 110)
    expect((await sent(given, 110)).url).toMatch(new RegExp(`cursor=${interval + wanted - 1000}$`))
  })

  it("goes to the viewer-response function beside the key", async () => {
    expect((await sent("&cursor=7")).headers["x-tailrace-cursor"]).toBe("7")
    expect((await sent("&cursor=x")).headers["x-tailrace-cursor"]).toBe("0")
    const forged = { headers: { "x-tailrace-cursor": "9" } }
    expect((await edge(STREAM, forged)).headers).not.toHaveProperty("x-tailrace-cursor")
  })
})

describe("the viewer-response function", () => {
  const respond = loadFunction(responseCode())
  const was = { headers: new Map([["stream-cursor", ["1000"]], ["stream-next-offset", [TOKEN]]]) }

  /** The cursor that a reader gets with a shared one. */
  async function given(headers, query = "", answer = was.headers) {
    const request = { method: "GET", path: STREAM, query, headers: [["host", HOST], ...headers] }
    const event = toResponseEvent(request, { statusCode: 200, statusMessage: "OK" }, answer)
    const { response } = await respond.run(event)
    return responseHeaders(response, answer).get("stream-cursor")?.[0]
  }
  const held = (cursor) => given([["x-tailrace-cursor", cursor]])

  it.each([["0", "1000"], ["999", "1000"], ["1000", "1001"], ["5000", "5001"], ["9".repeat(15), `1${"0".repeat(15)}`]])(
    "gives a reader that holds %s the cursor %s",
    async (cursor, wanted) => expect(await held(cursor)).toBe(wanted),
  )

  it("understands the request as the viewer sent it, too", async () => {
    expect(await given([], "cursor=1000")).toBe("1001")
    expect(await given([], "cursor=x")).toBe("1000")
  })

  /** A response after the function: its headers by name. */
  async function after(headers) {
    const was = new Map(Object.entries(headers).map(([name, value]) => [name, [value]]))
    const event = toResponseEvent({ method: "GET", path: STREAM }, { statusCode: 200 }, was)
    return Object.fromEntries(responseHeaders((await respond.run(event)).response, was))
  }

  it("tells browsers not to keep shared events", async () => {
    const events = { "content-type": "text/event-stream" }
    const shared = await after({ ...events, "cache-control": "public, max-age=0, s-maxage=1" })
    expect(shared["cache-control"]).toEqual(["no-cache"])
    const alone = await after({ ...events, "cache-control": "private, no-cache" })
    expect(alone["cache-control"]).toEqual(["private, no-cache"])
    const data = await after({ "content-type": "text/plain", "cache-control": "public, max-age=1" })
    expect(data["cache-control"]).toEqual(["public, max-age=1"])
    expect(await after({ "cache-control": "public, max-age=1" })).toEqual({ "cache-control": ["public, max-age=1"] })
  })

  it("removes the time to try again, which is for errors", async () => {
    expect(await after({ "retry-after": "5", etag: '"x"' })).toEqual({ etag: ['"x"'] })
  })

  it("leaves other responses alone", async () => {
    expect(await given([])).toBe("1000")
    expect(await given([["x-tailrace-cursor", "5"]], "", new Map())).toBeUndefined()
  })
})

describe("the mounts", () => {
  it("have cache entries of their own, as a stream that does not exist yet differs", async () => {
    for (const method of ["GET", "HEAD"]) expect(await urlOf("/ds/a%2Fb/c", { method })).toBe("/ds/a%2Fb/c")
  })

  it.each([
    ["offset=", ""],
    ["offset=0", ""],
    ["offset=%30&live=false", ""],
    ["offset=0&live=long-poll", "?offset=-1&live=long-poll&cursor=1000"],
    ["offset=00", "?offset=00"],
    ["last=0", "?last=0"],
  ])("on the second one %s is the beginning in its own spelling", async (given, wanted) => {
    expect(await queryOf(given, SECOND)).toBe(wanted)
  })

  it("of a deployment are its own", async () => {
    const rooms = { through: elsewhere("/rooms/x") }
    expect(await queryOf("offset=0", "/rooms/x/a", rooms)).toBe("")
    expect(await queryOf("offset=0&a=1", "/ds/a", rooms)).toBe("?offset=0&a=1")
    expect(await queryOf("offset=0&a=1", "/ds/a", { through: elsewhere("") })).toBe("?offset=0&a=1")
    expect(await queryOf("offset=0&a=1", STREAM, { through: elsewhere("") })).toBe("?offset=0")
  })

  it("end with a slash", async () => {
    expect(await urlOf("/dsx/a?b=1")).toBe("/dsx/a?b=1")
  })
})

describe("Last-Event-ID", () => {
  const other = "0000000000000008_0000000000000200"

  it.each([
    ["is newer than the offset", `offset=${TOKEN}&live=sse`, `?offset=${other}&live=sse`],
    ["is newer than last and since", "last=5&since=0&live=sse&cursor=3", `?offset=${other}&live=sse&cursor=3`],
    ["means nothing to a long-poll", `offset=${TOKEN}&live=long-poll`, `?offset=${TOKEN}&live=long-poll&cursor=1000`],
    ["means nothing to a catch-up read", `offset=${TOKEN}`, `?offset=${TOKEN}`],
  ])("%s", async (_, given, wanted) => {
    const { url, headers } = await edge(`${STREAM}?${given}`, { headers: { "last-event-id": other } })
    expect(url).toBe(STREAM + wanted)
    expect(headers["last-event-id"]).toBe(other)
  })

  it.each(["now", "", "7", [other, other]])("that is no token is the app's to judge: %s", async (id) => {
    const url = `${STREAM}?offset=-1&live=sse`
    expect(await urlOf(url, { headers: { "last-event-id": id } })).toBe(url)
  })
})

describe("other methods", () => {
  it.each(["POST", "PUT", "DELETE", "OPTIONS"])("%s has no query and keeps its path", async (method) => {
    expect(await urlOf("/ds/a?offset=now&x=1", { method })).toBe("/ds/a")
    expect(await urlOf("/v1/stream/a?offset=now", { method })).toBe("/v1/stream/a")
  })

  it.each(["POST", "PUT", "DELETE"])("%s goes to http whatever it asks for", async (method) => {
    const { origin, headers } = await edge(`${STREAM}?offset=-1&live=sse`, { method })
    expect(origin).toBe("http")
    expect(headers).not.toHaveProperty("x-tailrace-reader")
  })

  it("keeps what the app reads of a write", async () => {
    const given = { "content-type": "text/plain", "stream-seq": "7", "if-match": '"tag"', "accept-encoding": "gzip" }
    expect((await edge(STREAM, { method: "POST", headers: given })).headers).toMatchObject(given)
  })
})

describe("the origin", () => {
  it("is live for server-sent events", async () => {
    expect((await edge(`${STREAM}?live=sse&offset=now`)).origin).toBe("live")
    expect((await edge(`/ds/a?live=%73se&offset=now`)).origin).toBe("live")
  })

  it.each([`${STREAM}?offset=now&live=long-poll`, "/ds/a?live=long%2Dpoll&offset=0"])("is wait for %s", async (url) => {
    expect((await edge(url)).origin).toBe("wait")
    expect((await edge(url, { method: "HEAD" })).origin).toBe("http")
    expect((await edge(url, { method: "POST" })).origin).toBe("http")
  })

  it.each([STREAM, "/health?live=sse", "/health?live=long-poll"])("is http for %s", async (url) => {
    expect((await edge(url)).origin).toBe("http")
  })

  it.each([
    ["/v1/read?stream=a&live=sse", "live"],
    ["/v1/read?stream=a&live=long-poll&live=%73se", "live"],
    ["/v1/read?stream=a&live=long-poll", "wait"],
    ["/v1/read?stream=a", "http"],
    ["/v1/read/x?live=sse", "http"],
  ])("of a read of many streams, %s, is %s", async (url, wanted) => {
    expect(await edge(url)).toMatchObject({ url, origin: wanted })
  })

  it("is http for HEAD", async () => {
    expect((await edge(`${STREAM}?live=sse&offset=now`, { method: "HEAD" })).origin).toBe("http")
  })

  it.each([
    ["POST", "/api/v1/watch"],
    ["POST", "/api/v1/replay"],
    ["GET", "/events"],
    ["POST", "/events"],
  ])("is live for %s %s, whose answer goes on", async (method, path) => {
    const { url, origin } = await edge(`${path}?a=1&b=%20`, { method })
    expect(origin).toBe("live")
    expect(url).toBe(`${path}?a=1&b=%20`)
  })

  it.each([
    ["GET", "/api/v1/watch"],
    ["OPTIONS", "/api/v1/watch"],
    ["OPTIONS", "/api/v1/replay"],
    ["POST", "/api/v1/notification"],
    ["POST", "/api/v1/watch/"],
    ["POST", "/x/api/v1/watch"],
    ["POST", "/api/v1/watchman"],
    ["GET", "/api/v1/schema"],
    ["DELETE", "/api/v1/admin/all"],
    ["HEAD", "/events"],
    ["OPTIONS", "/events"],
    ["GET", "/events/"],
    ["GET", "/api-docs/openapi.json"],
    ["GET", "/ready"],
    ["POST", "/_broadcast"],
    ["POST", "/v1/stream/events"],
  ])("is http for %s %s", async (method, path) => {
    expect((await edge(path, { method })).origin).toBe("http")
  })

  const CONTAINERS = { origins: ["http", "containers"], now: () => NOW }
  const contained = loadFunction(code("open", "/ds", 20, "held", "containers"), CONTAINERS)
  const writing = loadFunction(code("open", "/ds", 20, "held", "containers", "containers"), CONTAINERS)

  it.each([
    ["GET", `${STREAM}?live=sse&offset=now`],
    ["GET", `${STREAM}?live=long-poll&offset=now`],
    ["GET", "/ds/a?live=long%2Dpoll&offset=0"],
    ["GET", "/v1/read?stream=a"],
    ["GET", "/v1/read?stream=a&live=long-poll"],
    ["GET", "/v1/read?stream=a&live=sse"],
    ["POST", "/api/v1/watch"],
    ["POST", "/api/v1/replay"],
    ["GET", "/events"],
    ["POST", "/events"],
  ])("is containers for %s %s, if there are any", async (method, url) => {
    expect((await edge(url, { method, through: contained })).origin).toBe("containers")
    expect((await edge(url, { method, through: writing })).origin).toBe("containers")
  })

  it.each([
    ["PUT", STREAM],
    ["POST", STREAM],
    ["DELETE", STREAM],
    ["POST", "/_broadcast"],
    ["POST", "/api/v1/notification"],
    ["PATCH", "/x"],
  ])("is containers for %s %s only if they write", async (method, url) => {
    expect((await edge(url, { method, through: contained })).origin).toBe("http")
    expect((await edge(url, { method, through: writing })).origin).toBe("containers")
  })

  it.each([
    ["GET", `${STREAM}?offset=-1`],
    ["HEAD", `${STREAM}?live=sse&offset=now`],
    ["OPTIONS", STREAM],
    ["GET", "/v1/streams"],
    ["GET", "/v1/read/x?live=sse"],
    ["GET", "/events/"],
    ["GET", "/api/v1/watch"],
    ["OPTIONS", "/api/v1/watch"],
    ["HEAD", "/v1/read"],
  ])("is http for %s %s also beside containers", async (method, url) => {
    expect((await edge(url, { method, through: contained })).origin).toBe("http")
    expect((await edge(url, { method, through: writing })).origin).toBe("http")
  })

  it.each(["open", "closed"])("of a WebSocket is that of its behaviour, which is %s", async (access) => {
    const through = loadFunction(code(access), { origins: ["http", "live", "cable"] })
    const upgrade = { "sec-websocket-key": "a", "sec-websocket-version": "13", "sec-websocket-protocol": "b" }
    const event = toEvent(
      { method: "GET", path: "/cable", query: "jid=x%20y", headers: [["host", HOST], ...Object.entries(upgrade)] },
      { requestId: "request-1" },
    )
    const { request, origin } = await through.run(event)
    const sent = fromRequest(request, event, "jid=x%20y")
    expect(origin).toBeUndefined()
    expect(sent).toMatchObject({ path: "/cable", query: "jid=x%20y" })
    expect(Object.fromEntries(sent.headers)).toMatchObject({ ...upgrade, "x-forwarded-host": HOST })
  })
})

describe("the headers", () => {
  const all = {
    cookie: "a=1; b=2",
    "accept-encoding": "br, gzip",
    "if-none-match": '"tag"',
    "if-modified-since": "Mon, 16 Nov 2026 00:00:00 GMT",
    "if-range": '"tag"',
    "if-match": '"tag"',
    range: "bytes=0-9",
    authorization: "Bearer secret",
  }
  const kept = async (target, options) => {
    const { headers } = await edge(target, { headers: all, ...options })
    return Object.keys(all).filter((name) => name in headers)
  }

  it("of a catch-up read: what the app or the cache understands", async () => {
    expect(await kept(STREAM)).toEqual(["accept-encoding", "if-none-match", "authorization"])
  })

  it.each(["long-poll", "sse"])("of live=%s: nothing that would part those who wait", async (live) => {
    expect(await kept(`${STREAM}?offset=now&live=${live}`)).toEqual(["authorization"])
  })

  it.each(["GET", "HEAD", "POST"])("of a %s have no cookies", async (method) => {
    expect(await kept(STREAM, { method })).not.toContain("cookie")
  })

  it("name the host that the viewer asked, and no other", async () => {
    for (const target of [STREAM, "/health"]) {
      const { headers } = await edge(target, { headers: { "x-forwarded-host": ["evil", "evil"] } })
      expect(headers).toMatchObject({ host: HOST, "x-forwarded-host": HOST })
    }
  })

  it.each([STREAM, "/health"])("of %s cannot forge ours", async (target) => {
    const forged = { "x-tailrace-origin": "x", "X-Tailrace-Reader": ["y", "z"], "x-tailrace-": "" }
    const { headers } = await edge(target, { headers: forged })
    expect(Object.keys(headers).sort()).toEqual(["host", "x-forwarded-host", "x-tailrace-viewer"])
  })
})

describe("x-tailrace-reader", () => {
  const reader = async (target, options) => (await edge(target, options)).headers["x-tailrace-reader"]

  it("keeps readers apart whose answer is for one only", async () => {
    for (const [target, method] of [
      [`${STREAM}?offset=now&live=sse`, "GET"],
      [`${STREAM}?offset=now`, "GET"],
      [`${STREAM}?last=10`, "GET"],
      [`${STREAM}?since=0&live=long-poll`, "GET"],
      [STREAM, "HEAD"],
    ]) {
      expect(await reader(target, { method, id: "one" })).toBe("one")
      expect(await reader(target, { method, id: "two" })).toBe("two")
    }
  })

  it.each([STREAM, SECOND, `${STREAM}?offset=${TOKEN}`, `${STREAM}?offset=now&live=long-poll`, "/health", "/v1/read?last=1"])(
    "is not on %s",
    async (target) => {
      const forged = { "x-tailrace-reader": "forged" }
      expect(await reader(target, { headers: forged })).toBeUndefined()
    },
  )

  it("cannot be chosen by a viewer", async () => {
    const forged = { "x-tailrace-reader": "forged" }
    expect(await reader(`${STREAM}?offset=now&live=sse`, { headers: forged })).toBe("request-1")
  })
})

describe("other paths", () => {
  it.each(["/health", "/v1/streams?prefix=a%20b&limit=2&after=", "/docs?x", "/openapi.json?b=2&a=1", "/v1/stream", "/ds"])(
    "%s stays as it is",
    async (target) => {
      const { url, headers } = await edge(target, {
        headers: { cookie: "a=1; b=2", "accept-encoding": "br", range: "bytes=0-1" },
      })
      expect(url).toBe(target)
      expect(headers).toMatchObject({ cookie: "a=1; b=2", "accept-encoding": "br", range: "bytes=0-1" })
    },
  )
})

describe("access", () => {
  const SECRET = "a secret of more than 32 bytes, as it should be".replaceAll(" ", "-")
  const NOW = 1_800_000_000
  const ACCESS = {
    signed: [SECRET],
    tokens: [SECRET],
    bearer: true,
    audience: "",
    issuer: "",
    age: 3600,
    param: "jid",
    identify: true,
    enforce: false,
    public: true,
    proof: "the key of passes",
  }
  const closed = (access = {}, store = { public: "news/* status/**" }) =>
    loadFunction(code("closed"), {
      origins: ["http", "wait", "live"],
      store: () => ({ access: JSON.stringify({ ...ACCESS, ...access }), ...store }),
      now: () => NOW * 1000,
    })
  const mac = (key, text, encoding) => createHmac("sha256", key).update(text).digest(encoding)
  const segment = (value) => Buffer.from(JSON.stringify(value)).toString("base64url")
  const token = (claims, { key = SECRET, header = { alg: "HS256", typ: "JWT" } } = {}) => {
    const signing = `${segment(header)}.${segment({ scope: "read", streams: "a/*", exp: NOW + 60, ext: "{}", ...claims })}`
    return `${signing}.${mac(key, signing, "base64url")}`
  }
  const signed = (name, key = SECRET) => {
    const encoded = Buffer.from(JSON.stringify(name)).toString("base64")
    return `${encoded}--${mac(key, encoded, "hex")}`
  }
  const bearer = (claims, options) => ({ authorization: `Bearer ${token(claims, options)}` })
  const sent = (target, options = {}) => edge(target, { through: closed(), ...options })
  const passes = async (target, options) => "x-tailrace-edge-token" in (await sent(target, options)).headers
  const PLAIN = ["host", "x-forwarded-host", "x-tailrace-edge-token", "x-tailrace-viewer"]

  it("gives those who may read one request, whatever they show", async () => {
    const shown = [
      sent(STREAM, { headers: bearer() }),
      sent(STREAM, { headers: bearer({ sub: "ada" }) }),
      sent(STREAM, { headers: { "x-signed": signed("a/b") } }),
      sent(`${STREAM}?signed=${encodeURIComponent(signed("a/b"))}&x=1`),
      sent(STREAM, { headers: { ...bearer(), "x-signed": signed("a/b"), "x-jid": token() } }),
    ]
    const proof = mac(ACCESS.proof, `edge-token\n${STREAM}`, "hex")
    for (const { url, headers } of await Promise.all(shown)) {
      expect(url).toBe(STREAM)
      expect(Object.keys(headers).sort()).toEqual(PLAIN)
      expect(headers["x-tailrace-edge-token"]).toBe(proof)
    }
  })

  it("gives a read of the second mount the edge token of its path", async () => {
    const { url, headers } = await sent(SECOND, { headers: bearer() })
    const proof = mac(ACCESS.proof, `edge-token\n${SECOND}`, "hex")
    expect([url, headers["x-tailrace-edge-token"]]).toEqual([SECOND, proof])
  })

  it("lets others go to the origin by themselves, with all that they show", async () => {
    const given = { ...bearer({}, { key: "wrong" }), "x-signed": "a--b", "x-jid": "c" }
    const { url, headers } = await sent(`${STREAM}?offset=now&live=long-poll&signed=d%2F&x=%20&jid`, { headers: given })
    expect(url).toMatch(/\?offset=now&live=long-poll&cursor=\d+$/)
    expect(headers).toEqual({
      host: HOST,
      "x-forwarded-host": HOST,
      "x-signed": "a--b",
      "x-jid": "c",
      "x-tailrace-authorization": given.authorization,
      "x-tailrace-cursor": "0",
      "x-tailrace-query": "signed=d%2F&x=%20&jid=",
      "x-tailrace-reader": "request-1",
      "x-tailrace-viewer": "127.0.0.1",
    })
  })

  it.each([
    ["nothing", {}],
    ["another stream's name", { "x-signed": signed("a/c") }],
    ["a name signed with another key", { "x-signed": signed("a/b", "other") }],
    ["an expired token", bearer({ exp: NOW })],
    ["a token that lasts too long", bearer({ exp: NOW + 3601 })],
    ["a token without an end", bearer({ exp: undefined })],
    ["a token for later", bearer({ nbf: NOW + 31 })],
    ["a token of the future", bearer({ iat: NOW + 31 })],
    ["a token for others", bearer({ aud: "others" })],
    ["a token of others", bearer({ iss: "others" })],
    ["a token for other streams", bearer({ streams: ["b/**", "a"] })],
    ["a token that may write", bearer({ scope: "write" })],
    ["a token with a fraction of a second", bearer({ exp: NOW + 1.5 })],
    ["a token that is not all ASCII", bearer({ sub: "é" })],
    ["a token of no algorithm", bearer({}, { header: { alg: "none" } })],
    ["a token with its own key", bearer({}, { header: { alg: "HS256", jwk: {} } })],
    ["a bad token beside a good name", { ...bearer({ exp: 1 }), "x-signed": signed("a/b") }],
    ["a good token beside a bad name", { ...bearer(), "x-signed": signed("a/c") }],
    ["a bad identification beside a good token", { ...bearer(), "x-jid": token({ nbf: NOW + 1 }) }],
    ["a name twice", { "x-signed": [signed("a/b"), signed("a/b")] }],
    ["another scheme", { authorization: "Basic YTpi" }],
  ])("does not verify %s", async (_, headers) => {
    const result = await sent(STREAM, { headers })
    expect(result.headers).not.toHaveProperty("x-tailrace-edge-token")
    expect(result.headers["x-tailrace-reader"]).toBe("request-1")
  })

  it("takes both keys of a rotation", async () => {
    const through = closed({ signed: ["new", SECRET], tokens: ["new", SECRET] })
    for (const key of ["new", SECRET]) {
      expect(await passes(STREAM, { through, headers: bearer({}, { key }) })).toBe(true)
      expect(await passes(STREAM, { through, headers: { "x-signed": signed("a/b", key) } })).toBe(true)
    }
  })

  it("asks for audience and issuer as the access does", async () => {
    const through = closed({ audience: "us", issuer: "them" })
    expect(await passes(STREAM, { through, headers: bearer({ aud: ["x", "us"], iss: "them" }) })).toBe(true)
    expect(await passes(STREAM, { through, headers: bearer({ aud: "us" }) })).toBe(false)
    expect(await passes(STREAM, { through, headers: bearer() })).toBe(false)
  })

  it("knows public streams, but lets nobody in with a bad credential", async () => {
    expect(await passes("/v1/stream/news/today")).toBe(true)
    expect(await passes("/v1/stream/status/a/b")).toBe(true)
    expect(await passes("/v1/stream/news/2026/may")).toBe(false)
    expect(await passes("/v1/stream/news/today", { headers: bearer({ exp: 1 }) })).toBe(false)
  })

  it("wants an identification where it is enforced", async () => {
    const through = closed({ enforce: true })
    const named = { "x-signed": signed("a/b") }
    expect(await passes(STREAM, { through, headers: named })).toBe(false)
    expect(await passes(STREAM, { through, headers: { ...named, "x-jid": token() } })).toBe(true)
    expect(await passes(`${STREAM}?jid=${token()}`, { through, headers: named })).toBe(true)
    expect(await passes(STREAM, { through, headers: bearer() })).toBe(true)
  })

  it.each([
    ["no store", loadFunction(code("closed"), { ...options })],
    ["an empty store", loadFunction(code("closed"), { ...options, store: () => ({}) })],
    ["nonsense in the store", closed({}, { access: "nonsense" })],
    ["no public streams where there should be", closed({}, {})],
    ["keys for another algorithm", closed({ bearer: false })],
  ])("verifies nothing with %s", async (_, through) => {
    const { headers } = await sent("/v1/stream/news/today", { through, headers: bearer({ streams: "x" }) })
    expect(headers["x-tailrace-reader"]).toBe("request-1")
    expect(headers["x-tailrace-authorization"]).toMatch(/^Bearer /)
  })

  it.each(["a%2Fb", "%61/b", "a//b", "a/./b", "a/", "__ds/b", `a/${"b".repeat(1023)}`])("does not judge the path %s", async (path) => {
    expect(await passes(`/v1/stream/${path}`, { headers: bearer({ streams: "**" }) })).toBe(false)
  })

  it.each(["PUT", "POST", "DELETE", "OPTIONS"])("of a %s is the origin's to judge", async (method) => {
    const { url, headers } = await sent(`${STREAM}?offset=1&signed=x`, { method, headers: bearer() })
    expect(url).toBe(STREAM)
    expect(headers).not.toHaveProperty("x-tailrace-edge-token")
    expect(headers).not.toHaveProperty("x-tailrace-reader")
    expect(headers).not.toHaveProperty("authorization")
    expect(headers["x-tailrace-authorization"]).toBe(bearer().authorization)
    expect(headers["x-tailrace-query"]).toBe("signed=x")
  })

  it("of other paths is the origin's to judge, and their query stays", async () => {
    const { url, headers } = await sent("/v1/streams?prefix=a&jid=x", { headers: bearer() })
    expect(url).toBe("/v1/streams?prefix=a&jid=x")
    expect(headers["x-tailrace-authorization"]).toBe(bearer().authorization)
    expect(headers).not.toHaveProperty("x-tailrace-query")
  })

  it.each([
    ["POST", "/api/v1/watch", "live"],
    ["POST", "/api/v1/replay", "live"],
    ["POST", "/api/v1/notification", "http"],
    ["GET", "/events", "live"],
    ["POST", "/events", "live"],
    ["GET", "/cable", "http"],
    ["GET", "/v1/read", "http"],
  ])("of %s %s gets to the origin %s", async (method, path, wanted) => {
    const given = { ...bearer(), "x-signed": "a--b", "x-jid": "c" }
    const { url, origin, headers } = await sent(`${path}?jid=x`, { method, headers: given })
    expect([url, origin]).toEqual([`${path}?jid=x`, wanted])
    expect(headers).toEqual({
      host: HOST,
      "x-forwarded-host": HOST,
      "x-signed": "a--b",
      "x-jid": "c",
      "x-tailrace-authorization": given.authorization,
      "x-tailrace-viewer": "127.0.0.1",
    })
  })

  it.each(["HEAD", "GET"])("of a %s for one reader is verified, too", async (method) => {
    const { headers } = await sent(`${STREAM}?offset=now`, { method, headers: bearer() })
    expect(headers).toMatchObject({ "x-tailrace-reader": "request-1", "x-tailrace-edge-token": expect.any(String) })
  })

  it("cannot be forged by a viewer", async () => {
    const forged = { "x-tailrace-edge-token": "x", "x-tailrace-authorization": "y", "x-tailrace-query": "z" }
    const { headers } = await sent(STREAM, { headers: forged })
    const ours = ["host", "x-forwarded-host", "x-tailrace-reader", "x-tailrace-viewer"]
    expect(Object.keys(headers).sort()).toEqual(ours)
  })
})
