// The stock transports of the AI SDK and of TanStack AI: an application asks a model and writes the answer to a
// stream; browsers read that, and find it again after a reload, in other tabs, and when the application is gone.
import { randomUUID } from "node:crypto"
import { createServer } from "node:http"
import { createDurableChatTransport, toDurableStreamResponse } from "@durable-streams/aisdk-transport"
import {
  durableStreamConnection,
  materializeSnapshotFromDurableStream,
  toDurableChatSessionResponse,
} from "@durable-streams/tanstack-ai-transport"
import { readUIMessageStream } from "ai"
import { afterAll, beforeAll, describe, expect, it } from "vitest"

const WORDS = Array.from({ length: 40 }, (_, index) => `word${index} `)
const TEXT = WORDS.join("")
const TIMEOUT = { timeout: 120_000 }

// A model that streams its answer over HTTP, a word for each step that the test allows.
class Model {
  constructor() {
    this.allowed = 0
    this.waiting = []
    this.server = createServer(async (_, response) => {
      let gone = false
      response.on("close", () => (gone = true))
      response.writeHead(200, { "content-type": "application/x-ndjson" })
      for (const [index, word] of WORDS.entries()) {
        while (this.allowed <= index && !gone) await new Promise((resolve) => this.waiting.push(resolve))
        if (gone) return
        response.write(`${JSON.stringify(word)}\n`)
      }
      response.end()
    })
  }

  allow(count) {
    this.allowed += count
    for (const resolve of this.waiting.splice(0)) resolve()
  }

  async *ask(signal) {
    const answer = await fetch(address(this.server), { signal })
    let rest = ""
    for await (const bytes of answer.body.pipeThrough(new TextDecoderStream())) {
      const lines = (rest + bytes).split("\n")
      rest = lines.pop()
      for (const line of lines) yield JSON.parse(line)
    }
  }
}

const address = (server) => `http://127.0.0.1:${server.address().port}`
const listen = (server) => new Promise((resolve) => server.listen(0, "127.0.0.1", resolve))
const close = (server) => {
  server.closeAllConnections()
  return new Promise((resolve) => server.close(resolve))
}

// An application with routes that take and return Fetch's requests and responses.
function application(routes) {
  return createServer(async (request, response) => {
    const chunks = []
    for await (const chunk of request) chunks.push(chunk)
    const url = new URL(request.url, "http://app")
    const route = routes[`${request.method} ${url.pathname.replace(/\/c-[^/]*/, "/:id")}`]
    const answer = await route(JSON.parse(Buffer.concat(chunks).toString() || "null"), url)
    response.writeHead(answer.status, Object.fromEntries(answer.headers))
    response.end(Buffer.from(await answer.arrayBuffer()))
  })
}

describe("the AI SDK", () => {
  const model = new Model()
  const active = new Map()
  const stops = new Map()
  const app = application({
    "POST /chat": async ({ id, messages }) => {
      const path = `${process.env.SERVER_URL}/v1/stream/ai/${id}/${messages.length}`
      const stop = new AbortController()
      active.set(id, path)
      stops.set(id, stop)
      async function* chunks() {
        yield { type: "start", messageId: `${id}-${messages.length}` }
        yield { type: "text-start", id: "t" }
        try {
          for await (const delta of model.ask(stop.signal)) yield { type: "text-delta", id: "t", delta }
          yield { type: "text-end", id: "t" }
          yield { type: "finish" }
        } catch (error) {
          if (error.name !== "AbortError") throw error
          yield { type: "abort" }
        } finally {
          active.delete(id)
        }
      }
      return toDurableStreamResponse({
        source: chunks(),
        stream: { writeUrl: path, headers: { "Stream-TTL": "3600" } },
      })
    },
    "GET /chat/:id/stream": async (_, url) => {
      const path = active.get(url.pathname.split("/")[2])
      return path ? Response.json({ streamUrl: path }, { headers: { location: path } }) : new Response(null, { status: 204 })
    },
    "POST /chat/:id/stop": async (_, url) => {
      stops.get(url.pathname.split("/")[2]).abort()
      return new Response(null, { status: 204 })
    },
  })
  beforeAll(() => Promise.all([listen(model.server), listen(app)]))
  afterAll(() => Promise.all([close(model.server), close(app)]))

  const transport = () => createDurableChatTransport({ api: `${address(app)}/chat` })
  const ask = (id, abortSignal) =>
    transport().sendMessages({
      trigger: "submit-message",
      chatId: id,
      messages: [{ id: "1", role: "user", parts: [{ type: "text", text: "tell" }] }],
      abortSignal,
    })
  const textOf = (message) => message.parts.filter((part) => part.type === "text").map((part) => part.text).join("")

  async function textUntil(stream, words) {
    let text = ""
    for await (const message of readUIMessageStream({ stream })) {
      text = textOf(message)
      if (text.split(" ").length > words) break
    }
    return text
  }

  it("shows an answer again after a reload, in other tabs, and when it is complete", TIMEOUT, async () => {
    const id = `c-${randomUUID()}`
    model.allowed = 5
    const page = new AbortController()
    const first = await ask(id, page.signal)
    expect(await textUntil(first, 5)).toBe(WORDS.slice(0, 5).join(""))
    page.abort()
    const reloaded = await transport().reconnectToStream({ chatId: id })
    const otherTab = await transport().reconnectToStream({ chatId: id })
    model.allow(WORDS.length)
    expect(await textUntil(reloaded, Infinity)).toBe(TEXT)
    expect(await textUntil(otherTab, Infinity)).toBe(TEXT)
    expect(await transport().reconnectToStream({ chatId: id })).toBe(null)
    const head = await fetch(`${process.env.SERVER_URL}/v1/stream/ai/${id}/1`, { method: "HEAD" })
    expect(head.headers.get("stream-closed")).toBe("true")
  })

  it("stops the model, and keeps what it has said", TIMEOUT, async () => {
    const id = `c-${randomUUID()}`
    model.allowed = 7
    const viewer = await ask(id)
    const said = textUntil(viewer, Infinity)
    const other = await transport().reconnectToStream({ chatId: id })
    expect(await textUntil(other, 7)).toBe(WORDS.slice(0, 7).join(""))
    await fetch(`${address(app)}/chat/${id}/stop`, { method: "POST" })
    expect(await said).toBe(WORDS.slice(0, 7).join(""))
  })
})

describe("TanStack AI", () => {
  const model = new Model()
  const app = application({
    "POST /chat/:id": async ({ messages }, url) => {
      const messageId = randomUUID()
      async function* chunks() {
        yield { type: "TEXT_MESSAGE_START", messageId, role: "assistant" }
        let content = ""
        for await (const delta of model.ask()) {
          content += delta
          yield { type: "TEXT_MESSAGE_CONTENT", messageId, delta, content }
        }
        yield { type: "TEXT_MESSAGE_END", messageId }
      }
      return toDurableChatSessionResponse({
        stream: { writeUrl: `${process.env.SERVER_URL}/v1/stream/ai${url.pathname}` },
        newMessages: messages.slice(-1),
        responseStream: chunks(),
      })
    },
  })
  beforeAll(() => Promise.all([listen(model.server), listen(app)]))
  afterAll(() => Promise.all([close(model.server), close(app)]))

  const textOf = (message) => message.parts.map((part) => part.content).join("")

  it("follows a session, hydrates it, and goes on from there", TIMEOUT, async () => {
    const path = `/chat/c-${randomUUID()}`
    const readUrl = `${process.env.SERVER_URL}/v1/stream/ai${path}`
    const connect = (initialOffset) =>
      durableStreamConnection({ sendUrl: `${address(app)}${path}`, readUrl, initialOffset })
    const question = { id: "q1", role: "user", parts: [{ type: "text", content: "tell" }] }
    const deltas = async (connection, last) => {
      const page = new AbortController()
      const got = []
      for await (const chunk of connection.subscribe(page.signal)) {
        if (chunk.type === "TEXT_MESSAGE_CONTENT") got.push(chunk.delta)
        if (got.at(-1) === last) break
      }
      page.abort()
      return got.join("")
    }
    model.allowed = 10
    await connect().send([question])
    let snapshot
    do snapshot = await materializeSnapshotFromDurableStream({ readUrl })
    while (snapshot.messages.length < 2 || textOf(snapshot.messages[1]) !== WORDS.slice(0, 10).join(""))
    expect(snapshot.messages[0]).toMatchObject({ id: "q1", role: "user" })
    const tabs = [connect(snapshot.offset), connect(snapshot.offset)]
    const read = tabs.map((tab) => deltas(tab, WORDS.at(-1)))
    model.allow(WORDS.length)
    expect(await Promise.all(read)).toEqual(Array(2).fill(WORDS.slice(10).join("")))
    const complete = await materializeSnapshotFromDurableStream({ readUrl })
    expect(complete.messages.map(textOf)).toEqual(["tell", TEXT])
  })
})
