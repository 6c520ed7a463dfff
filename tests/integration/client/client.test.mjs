// The stock JavaScript client against any server:
// SERVER_URL=http://127.0.0.1:4437 npx vitest run --root tests/client
import { randomUUID } from "node:crypto"
import { DurableStream, IdempotentProducer, StaleEpochError, stream } from "@durable-streams/client"
import { describe, expect, it } from "vitest"

const JSON_TYPE = "application/json"
const BYTES_TYPE = "application/octet-stream"

const newUrl = () => `${process.env.SERVER_URL}/v1/stream/client/${randomUUID()}`
const create = (contentType, options) => DurableStream.create({ url: newUrl(), contentType, ...options })
const items = async (handle, options) => (await handle.stream({ live: false, ...options })).json()
const errorOf = (promise) => promise.then(() => undefined, (error) => error)

/** The first `count` items of a live session, as its subscriber gets them. */
function firstItems(session, count) {
  const items = []
  return new Promise((resolve) => {
    session.subscribeJson((batch) => {
      items.push(...batch.items)
      if (items.length >= count) {
        resolve(items)
        session.cancel()
      }
    })
  })
}

/** All pieces of a readable stream; settles when it ends. */
async function drain(readable) {
  const pieces = []
  for await (const piece of readable) pieces.push(piece)
  return pieces
}

describe("create, head, delete", () => {
  it("creates a stream that others can connect to", async () => {
    const { url } = await create(JSON_TYPE)
    const other = await DurableStream.connect({ url })
    expect(other.contentType).toBe(JSON_TYPE)
    expect(await other.head()).toMatchObject({ exists: true, streamClosed: false })
  })

  it("creates with a body, and again without harm", async () => {
    const first = await create("text/plain", { body: "hello" })
    await DurableStream.create({ url: first.url, contentType: "text/plain", body: "hello" })
    expect(await (await first.stream({ live: false })).text()).toBe("hello")
  })

  it("refuses to create the same stream with another content type", async () => {
    const { url } = await create(JSON_TYPE)
    const error = await errorOf(DurableStream.create({ url, contentType: "text/plain" }))
    expect(error.status).toBe(409)
  })

  it("deletes", async () => {
    const handle = await create(JSON_TYPE)
    await handle.delete()
    expect(await DurableStream.head({ url: handle.url })).toEqual({ exists: false })
    expect((await errorOf(stream({ url: handle.url, live: false }))).status).toBe(404)
  })
})

describe("append and catch up", () => {
  it("reads JSON back, message by message", async () => {
    const handle = await create(JSON_TYPE)
    await handle.append(JSON.stringify({ n: 1 }))
    await handle.append(JSON.stringify([2, 3]))
    expect(await items(handle)).toEqual([{ n: 1 }, [2, 3]])
  })

  it("reads text back", async () => {
    const handle = await create("text/plain")
    await handle.append("grüße, ")
    await handle.append("世界")
    expect(await (await handle.stream({ live: false })).text()).toBe("grüße, 世界")
  })

  it("reads bytes back exactly", async () => {
    const handle = await create(BYTES_TYPE)
    const bytes = Uint8Array.from({ length: 256 }, (_, n) => n)
    await handle.append(bytes)
    await handle.append(bytes)
    const read = await (await handle.stream({ live: false })).body()
    expect(read).toEqual(Uint8Array.from([...bytes, ...bytes]))
  })

  it("keeps the order of appends that the client batches", async () => {
    const handle = await create(JSON_TYPE)
    const wanted = Array.from({ length: 200 }, (_, n) => ({ n }))
    await Promise.all(wanted.map((item) => handle.append(JSON.stringify(item))))
    expect(await items(handle)).toEqual(wanted)
  })

  it("appends a stream of chunks", async () => {
    const handle = await create("text/plain")
    await handle.appendStream((async function* () {
      for (let n = 0; n < 10; n++) yield `line ${n}\n`
    })())
    const lines = (await (await handle.stream({ live: false })).text()).trimEnd().split("\n")
    expect(lines).toHaveLength(10)
    expect(lines.at(-1)).toBe("line 9")
  })

  it("reads a long stream in several responses", async () => {
    const handle = await create("text/plain", { batching: false })
    const block = "x".repeat(700_000)
    for (let n = 0; n < 4; n++) await handle.append(block)
    // Without `live` this client takes the first response for the whole stream.
    expect(await (await handle.stream({ live: true })).text()).toHaveLength(4 * block.length)
  })

  it("resumes at an offset", async () => {
    const handle = await create(JSON_TYPE)
    await handle.append("1")
    const { offset } = await handle.head()
    await handle.append("2")
    await handle.append("3")
    const session = await handle.stream({ offset, live: false })
    expect(await session.json()).toEqual([2, 3])
    expect(session.offset).toBe((await handle.head()).offset)
    expect(session.upToDate).toBe(true)
    expect(await items(handle, { offset: session.offset })).toEqual([])
  })

  it("rejects a Stream-Seq that does not increase", async () => {
    const handle = await create("text/plain", { batching: false })
    await handle.append("a", { seq: "0002" })
    expect((await errorOf(handle.append("b", { seq: "0001" }))).status).toBe(409)
  })
})

describe.each(["long-poll", "sse"])("live by %s", (live) => {
  it("delivers what is there and what comes later", async () => {
    const handle = await create(JSON_TYPE)
    await handle.append("1")
    const received = firstItems(await handle.stream({ live }), 3)
    await handle.append("2")
    await handle.append("3")
    expect(await received).toEqual([1, 2, 3])
  })

  it("starts at now", async () => {
    const handle = await create(JSON_TYPE)
    await handle.append('"old"')
    const received = firstItems(await handle.stream({ live, offset: "now" }), 1)
    await handle.append('"new"')
    expect(await received).toEqual(["new"])
  })

  it("delivers text", async () => {
    const handle = await create("text/plain")
    const received = drain((await handle.stream({ live })).textStream())
    for (const line of ["a\n", "b\n", "\n", "c"]) await handle.append(line)
    await handle.close()
    expect((await received).join("")).toBe("a\nb\n\nc")
  })

  it("delivers bytes", async () => {
    const handle = await create(BYTES_TYPE)
    const received = drain((await handle.stream({ live })).bodyStream())
    await handle.append(Uint8Array.of(0, 255, 10))
    await handle.append(Uint8Array.of(13, 10))
    await handle.close()
    expect((await received).flatMap((chunk) => [...chunk])).toEqual([0, 255, 10, 13, 10])
  })

  it("ends when the stream is closed", async () => {
    const handle = await create(JSON_TYPE)
    const session = await handle.stream({ live })
    const received = drain(session.jsonStream())
    await handle.append("1")
    await handle.close({ body: "2" })
    expect(await received).toEqual([1, 2])
    expect(session.streamClosed).toBe(true)
  })

  it("keeps waiting past the server's own time limit", async () => {
    const handle = await create(JSON_TYPE)
    const received = firstItems(await handle.stream({ live }), 1)
    await new Promise((resolve) => setTimeout(resolve, 2_500))
    await handle.append("1")
    expect(await received).toEqual([1])
  })
})

describe("close", () => {
  it("is final, and harmless twice", async () => {
    const handle = await create(JSON_TYPE)
    const { finalOffset } = await handle.close({ body: "1" })
    expect((await handle.close()).finalOffset).toBe(finalOffset)
    expect(await handle.head()).toMatchObject({ offset: finalOffset, streamClosed: true })
    const error = await errorOf(handle.append("2"))
    expect(error.status).toBe(409)
    expect(error.headers).toMatchObject({
      "stream-closed": "true",
      "stream-next-offset": finalOffset,
    })
  })

  it("shows in a catch-up read", async () => {
    const handle = await create(JSON_TYPE, { body: "[1]", closed: true })
    const session = await handle.stream({ live: false })
    expect(await session.json()).toEqual([1])
    expect(session.streamClosed).toBe(true)
  })
})

describe("idempotent producer", () => {
  /** A network that loses the first answer to every append, so that each is sent twice. */
  const lossy = async (...request) => {
    await (await fetch(...request)).arrayBuffer()
    return fetch(...request)
  }

  it("appends once what it sends twice", async () => {
    const handle = await create(JSON_TYPE)
    const errors = []
    const producer = new IdempotentProducer(handle, "p", {
      fetch: lossy,
      maxBatchBytes: 64,
      onError: (error) => errors.push(error),
    })
    const wanted = Array.from({ length: 50 }, (_, n) => ({ n }))
    for (const item of wanted) producer.append(JSON.stringify(item))
    await producer.flush()
    await producer.detach()
    expect(errors).toEqual([])
    expect(producer.nextSeq).toBeGreaterThan(1)
    expect(await items(handle)).toEqual(wanted)
  })

  it("closes once with its final message", async () => {
    const handle = await create(JSON_TYPE)
    const producer = new IdempotentProducer(handle, "p", { fetch: lossy })
    producer.append("1")
    await producer.close("2")
    expect(await items(handle)).toEqual([1, 2])
    expect((await handle.head()).streamClosed).toBe(true)
  })

  it("is fenced by a newer epoch, and can claim the stream back", async () => {
    const handle = await create(JSON_TYPE)
    const send = async (body, options) => {
      const errors = []
      const producer = new IdempotentProducer(handle, "p", {
        ...options,
        onError: (error) => errors.push(error),
      })
      producer.append(body)
      await producer.flush()
      await producer.detach()
      return { errors, epoch: producer.epoch }
    }
    await send('"newer"', { epoch: 5 })
    const { errors } = await send('"zombie"', { epoch: 4 })
    expect(errors[0]).toBeInstanceOf(StaleEpochError)
    expect(errors[0].currentEpoch).toBe(5)
    expect((await send('"claimed"', { epoch: 4, autoClaim: true })).epoch).toBe(6)
    expect(await items(handle)).toEqual(["newer", "claimed"])
  })
})

describe("fork", () => {
  it("shares the past of its source, not its future", async () => {
    const source = await create(JSON_TYPE)
    await source.append("1")
    const { offset } = await source.head()
    await source.append("2")
    const fork = await DurableStream.create({
      url: newUrl(),
      contentType: JSON_TYPE,
      headers: {
        "Stream-Forked-From": new URL(source.url).pathname,
        "Stream-Fork-Offset": offset,
      },
    })
    await fork.append("3")
    expect(await items(fork)).toEqual([1, 3])
    expect(await items(source)).toEqual([1, 2])
  })
})
