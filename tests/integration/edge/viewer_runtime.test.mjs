// The stand-in for CloudFront's function runtime refuses what CloudFront would refuse.
import { parseAst } from "vite"
import { describe, expect, it } from "vitest"

import { code, responseCode } from "./code.mjs"
import { fromRequest, toEvent, ValidationError } from "../../../devtools/local_aws/viewer_event.mjs"
import { ExecutionError, loadFunction, MAX_BYTES } from "../../../devtools/local_aws/viewer_runtime.mjs"

const HOST = ["host", "streams.example.com"]

const returning = (body) => loadFunction(`async function handler(event) { ${body} }`, { origins: ["live"] })
const eventOf = (given = {}) => toEvent({ method: "GET", path: "/a", headers: [HOST], ...given })
const outcome = (body, given) => returning(body).run(eventOf(given))

/** The HTTP request after a function with this body. */
async function after(body, given) {
  const event = eventOf(given)
  const { request } = await returning(`const request = event.request; ${body}; return request`).run(event)
  return fromRequest(request, event, given?.query ?? "")
}

describe("the viewer functions", () => {
  it.each([code("closed"), responseCode()])("use no syntax that the runtime does not name", (source) => {
    const known = new Set(
      `Program ImportDeclaration ImportDefaultSpecifier VariableDeclaration VariableDeclarator Identifier Literal
       ArrayExpression ObjectExpression Property FunctionDeclaration BlockStatement AwaitExpression IfStatement
       ReturnStatement ExpressionStatement CallExpression MemberExpression LogicalExpression BinaryExpression
       AssignmentExpression UnaryExpression ConditionalExpression ArrowFunctionExpression TryStatement CatchClause
       ThrowStatement NewExpression`.split(/\s+/),
    )
    const visit = (node) => {
      if (node === null || typeof node !== "object") return
      if (Array.isArray(node)) return node.forEach(visit)
      if (node.type) {
        expect(known).toContain(node.type)
        expect(node.optional ?? false, "?. is unknown").toBe(false)
        expect(node.shorthand ?? false, "a shorthand property is unknown").toBe(false)
        expect(node.operator, "?? is unknown").not.toBe("??")
        if (node.type === "ArrowFunctionExpression") expect(node.async).toBe(false)
      }
      Object.values(node).forEach(visit)
    }
    visit(parseAst(source))
  })
})

describe("loading", () => {
  it("refuses more than 10 KB", () => {
    const code = "async function handler(event) { return event.request }"
    expect(loadFunction(code.padEnd(MAX_BYTES)).size).toBe(MAX_BYTES)
    expect(() => loadFunction(code.padEnd(MAX_BYTES + 1))).toThrow("10241 bytes")
  })

  it("refuses the import of cloudfront below the first line", () => {
    expect(() => loadFunction("// first\nimport cf from 'cloudfront';\nfunction handler() {}")).toThrow("first line")
  })

  it("refuses exports", () => {
    expect(() => loadFunction("export async function handler(event) {}")).toThrow(SyntaxError)
  })
})

describe("a function", () => {
  it.each([
    "process.env", "require('fs')", "fetch('http://127.0.0.1')", "setTimeout(() => 1)", "eval('1')", "new Function('1')()",
    "Buffer", "structuredClone({})", "new URL('http://a')", "new Map()", "queueMicrotask(() => 1)", "WebAssembly",
  ])("has no %s", async (expression) => {
    await expect(outcome(`${expression}; return event.request`)).rejects.toThrow(ExecutionError)
  })

  it("keeps nothing for the next request", async () => {
    const counting = loadFunction("let n = 0; function handler(event) { n += 1; return { statusCode: 200 + n } }")
    expect((await counting.run(eventOf())).response.status).toBe(201)
    expect((await counting.run(eventOf())).response.status).toBe(201)
  })

  it("may hash, and select an origin of its distribution only", async () => {
    const code = (id) => `import cf from 'cloudfront';
import crypto from 'crypto';
      function handler(event) {
        const digest = require('crypto').createHmac('sha256', 'key').update('text').digest('hex');
        event.request.headers.digest = { value: digest + crypto.createHash('md5').update('').digest('hex') };
        cf.selectRequestOriginById('${id}');
        return event.request;
      }`
    const { request, origin } = await loadFunction(code("live"), { origins: ["live"] }).run(eventOf())
    expect(origin).toBe("live")
    expect(request.headers.digest.value).toHaveLength(96)
    const wrong = loadFunction(code("other"), { origins: ["live"] })
    await expect(wrong.run(eventOf())).rejects.toThrow("no origin 'other'")
  })

  it.each([
    ["nothing", "return"],
    ["another method", "event.request.method = 'POST'; return event.request"],
    ["a relative URI", "event.request.uri = 'a'; return event.request"],
    ["a space in the query", "event.request.querystring = 'a=b c'; return event.request"],
    ["a fragment in the query", "event.request.querystring.a = { value: '#' }; return event.request"],
    ["a URL that is too long", "event.request.uri = '/'.repeat(8192); return event.request"],
    ["another host", "event.request.headers.host = { value: 'x' }; return event.request"],
    ["a length of its own", "event.request.headers['content-length'] = { value: '1' }; return event.request"],
    ["a header of CloudFront", "event.request.headers['x-edge-a'] = { value: '1' }; return event.request"],
    ["a header in upper case", "event.request.headers['X-A'] = { value: '1' }; return event.request"],
    ["a number for a text", "event.request.headers.a = { value: 1 }; return event.request"],
    ["a status that there is not", "return { statusCode: '200' }"],
    ["a body that is no text", "return { statusCode: 200, body: { encoding: 'hex', data: '' } }"],
  ])("must not return %s", async (_, body) => {
    await expect(outcome(body)).rejects.toThrow(ValidationError)
  })
})

describe("the event", () => {
  it("has the documented shape", () => {
    const event = toEvent(
      {
        method: "GET",
        path: "/a%20b",
        query: "a=1&b=%20&a=2&c&d=e=f",
        headers: [HOST, ["Accept", "x"], ["accept", "y"], ["Cookie", "k=v; l=w"], ["Connection", "close"], ["X-Edge-A", "1"]],
        ip: "198.51.100.11",
      },
      { requestId: "id" },
    )
    expect(event).toEqual({
      version: "1.0",
      context: {
        distributionDomainName: "d111111abcdef8.cloudfront.net",
        distributionId: "EDFDVBD6EXAMPLE",
        eventType: "viewer-request",
        requestId: "id",
      },
      viewer: { ip: "198.51.100.11" },
      request: {
        method: "GET",
        uri: "/a%20b",
        querystring: {
          a: { value: "1", multiValue: [{ value: "1" }, { value: "2" }] },
          b: { value: "%20" },
          c: { value: "" },
          d: { value: "e=f" },
        },
        headers: {
          host: { value: HOST[1] },
          accept: { value: "x", multiValue: [{ value: "x" }, { value: "y" }] },
        },
        cookies: { k: { value: "v" }, l: { value: "w" } },
      },
    })
  })

  it("goes back as it came where nothing was changed", async () => {
    const given = { path: "/a%2fb", query: "b=2&a=1&b=+&&c", headers: [HOST, ["a", "1"], ["a", "2"], ["cookie", "x=y; z=w"]] }
    const { path, query, headers } = await after("", given)
    expect({ path, query, headers }).toEqual(given)
  })

  it.each([
    ["a changed value replaces the first one", "request.querystring.a.value = '9'", "a=9&a=2&b=3"],
    ["changed values replace them all", "request.querystring.a.multiValue.pop(); request.querystring.a.value = '9'", "a=1&b=3"],
    ["a new field replaces the old one", "request.querystring.a = { value: '9' }", "a=9&b=3"],
    ["fields are written in their order", "request.querystring = { b: { value: '1' }, a: { value: '' } }", "b=1&a"],
    ["a text is taken as it is", "request.querystring = 'z=1&a=2'", "z=1&a=2"],
    ["an empty text is no query", "request.querystring = ''", ""],
  ])("%s", async (_, body, wanted) => {
    expect((await after(body, { query: "a=1&b=3&a=2" })).query).toBe(wanted)
  })
})
