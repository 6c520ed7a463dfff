// The stock Yjs provider, and the Yjs server that comes with it, in front of any server.
import { randomUUID } from "node:crypto"
import { YjsProvider } from "@durable-streams/y-durable-streams"
import { YjsServer } from "@durable-streams/y-durable-streams/server"
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest"
import * as Y from "yjs"

const SNAPSHOT_BYTES = 2_000
const WAIT = { timeout: 120_000, interval: 20 }

let yjs
const providers = []

beforeAll(async () => {
  vi.spyOn(console, "log").mockImplementation(() => {}) // The Yjs server reports every snapshot.
  const dsServerUrl = process.env.SERVER_URL
  yjs = new YjsServer({ dsServerUrl, port: 0, compactionThreshold: SNAPSHOT_BYTES })
  await yjs.start()
})

afterAll(async () => {
  for (const provider of providers) provider.destroy()
  await yjs.stop()
})

/** A client of a document that has all of it. */
async function join(docId, liveMode = "sse") {
  const doc = new Y.Doc()
  const baseUrl = `${yjs.url}/v1/yjs/tests`
  const provider = new YjsProvider({ doc, baseUrl, docId, liveMode })
  providers.push(provider)
  const failed = new Promise((_, reject) => provider.on("error", reject))
  await Promise.race([new Promise((resolve) => provider.once("synced", resolve)), failed])
  return doc.getArray("lines")
}

/** Edit a document: each edit is an update of its own. */
function write(lines, author, count, first = 0) {
  for (let n = first; n < first + count; n++) lines.insert(lines.length >> 1, [`${author}${n}`])
}

/** Wait until all clients have a number of lines; they have the same then. */
async function converged(clients, count) {
  await vi.waitFor(() => {
    for (const lines of clients) expect(lines.length).toBe(count)
  }, WAIT)
  const [first, ...others] = clients.map((lines) => lines.toArray())
  for (const other of others) expect(other).toEqual(first)
  expect(new Set(first).size).toBe(count)
}

/** Where a new client begins: with a snapshot, as soon as there is one. */
async function start(docId) {
  const url = `${yjs.url}/v1/yjs/tests/docs/${docId}?offset=snapshot`
  return (await fetch(url, { redirect: "manual" })).headers.get("location")
}

describe.each(["sse", "long-poll"])("a document by %s", (liveMode) => {
  it("converges while two clients edit it", { timeout: 150_000 }, async () => {
    const docId = randomUUID()
    const clients = await Promise.all([join(docId, liveMode), join(docId, liveMode)])
    for (let round = 0; round < 5; round++) {
      clients.forEach((lines, n) => write(lines, "ab"[n], 20, 20 * round))
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
    await converged(clients, 200)
  })

  it("goes on behind a snapshot", { timeout: 150_000 }, async () => {
    const docId = randomUUID()
    const writer = await join(docId, liveMode)
    write(writer, "a", 300)
    await vi.waitFor(async () => expect(await start(docId)).toMatch(/_snapshot$/), WAIT)
    // It asks for an offset that is one higher than that of the snapshot.
    const late = await join(docId, liveMode)
    await converged([writer, late], 300)
    write(writer, "b", 1)
    write(late, "c", 1)
    await converged([writer, late], 302)
  })
})

it("converges while many clients edit a document at once", { timeout: 150_000 }, async () => {
  const docId = randomUUID()
  const clients = await Promise.all(Array.from({ length: 8 }, () => join(docId)))
  clients.forEach((lines, n) => write(lines, "abcdefgh"[n], 25))
  await converged(clients, 200)
  await converged([...clients, await join(docId)], 200)
})
