// The stock client of Durable Streams on `/ds`, with a room's signed name, before its first broadcast.
import { DurableStream, stream } from "@durable-streams/client"
import { describe, expect, it } from "vitest"
import { broadcast, errorOf, fresh, sign, until } from "./tools.mjs"

const urlOf = (room) => `${process.env.SERVER_URL}/ds/${room}`

describe.each([true, "long-poll", "sse"])("a page that follows with live: %s", (live) => {
  it("may open before the first broadcast, and gets it", async () => {
    const room = fresh()
    const session = await stream({ url: urlOf(room), headers: { "X-Signed": sign(room) }, offset: "-1", live })
    const got = []
    session.subscribeJson((batch) => { got.push(...batch.items) })
    // Past the server's own limit of a long-poll.
    await new Promise((resolve) => setTimeout(resolve, 1_500))
    await broadcast(room, { n: 1 })
    await until(() => got.length === 1, "the first broadcast arrived")
    await broadcast(room, { n: 2 })
    await until(() => got.length === 2, "the second broadcast arrived")
    session.cancel()
    expect(got).toEqual([{ n: 1 }, { n: 2 }])
  })
})

it("reads a room without messages as an empty stream", async () => {
  const room = fresh()
  const options = { url: urlOf(room), headers: { "X-Signed": sign(room) } }
  expect(await (await stream({ ...options, live: false })).json()).toEqual([])
  expect(await DurableStream.head(options)).toMatchObject({ exists: true, contentType: "application/json" })
})

it("stops at an offset of a room that was deleted, instead of asking for ever", async () => {
  const room = fresh()
  const offset = "1234000000000001_0000000000000001"
  const failed = await errorOf(stream({ url: urlOf(room), headers: { "X-Signed": sign(room) }, offset, live: false }))
  expect(failed.status).toBe(410)
})
