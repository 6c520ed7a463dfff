// The stock JavaScript client against a server that asks for credentials:
// SERVER_URL, TOKEN (of a writer), STREAM and SIGNED (its signed name) are in the environment.
import { DurableStream, stream } from "@durable-streams/client"
import { expect, it } from "vitest"

const { SERVER_URL, TOKEN, STREAM, SIGNED } = process.env
const url = `${SERVER_URL}/v1/stream/${STREAM}`
const writer = { Authorization: `Bearer ${TOKEN}` }
const append = (value) =>
  new DurableStream({ url, headers: writer, contentType: "application/json" }).append(JSON.stringify(value))
const errorOf = (promise) => promise.then(() => undefined, (error) => error)

it("writes with a token, which may be asked for each time", async () => {
  const handle = await DurableStream.create({
    url,
    contentType: "application/json",
    headers: { Authorization: async () => `Bearer ${TOKEN}` },
  })
  await handle.append(JSON.stringify({ n: 1 }))
  expect(await (await handle.stream({ live: false })).json()).toEqual([{ n: 1 }])
})

it("reads and follows with a signed name", async () => {
  const session = await stream({ url, params: { signed: SIGNED }, offset: "-1", live: true })
  const got = []
  const done = new Promise((resolve) => {
    session.subscribeJson((batch) => {
      got.push(...batch.items)
      if (got.length === 1) {
        append({ n: 2 })
      } else if (got.length === 2) {
        resolve()
        session.cancel()
      }
    })
  })
  await done
  expect(got).toEqual([{ n: 1 }, { n: 2 }])
})

it("is refused without either, and with what is for something else", async () => {
  expect((await errorOf(stream({ url, live: false }))).status).toBe(401)
  expect((await errorOf(stream({ url, live: false, params: { signed: `${SIGNED}0` } }))).status).toBe(401)
  const other = new DurableStream({ url: `${SERVER_URL}/v1/stream/elsewhere`, headers: writer })
  expect((await errorOf(other.append("{}", { contentType: "application/json" }))).status).toBe(403)
})
