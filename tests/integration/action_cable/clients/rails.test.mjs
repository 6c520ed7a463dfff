// @vitest-environment jsdom
// Rails' own client, as a page has it.
import { adapters, ConnectionMonitor, createConsumer } from "@rails/actioncable"
import { afterEach, expect, it } from "vitest"
import WebSocket from "ws"
import { broadcast, disconnect, fresh, sign, token, until, URL_OF_CABLE } from "./tools.mjs"

adapters.WebSocket = WebSocket
// A busy machine must not look like a lost connection.
ConnectionMonitor.staleThreshold = 600

const opened = []
afterEach(() => opened.splice(0).forEach((consumer) => consumer.disconnect()))

/** Makes clients look whether to come back, which they do by themselves after a while. */
function showPage() {
  Object.defineProperty(document, "visibilityState", { value: "visible", configurable: true })
  document.dispatchEvent(new Event("visibilitychange", { bubbles: true }))
}

// A client that waits for half a second subscribes again, and is told twice: hence no exact counts.
function subscribe(identifier, url = URL_OF_CABLE) {
  const consumer = createConsumer(url)
  opened.push(consumer)
  const told = { connected: 0, rejected: 0, disconnected: [], messages: [] }
  consumer.subscriptions.create(identifier, {
    connected: () => told.connected++,
    rejected: () => told.rejected++,
    disconnected: (why) => told.disconnected.push(why),
    received: (message) => told.messages.push(message),
  })
  return told
}

it("hears what is broadcast", async () => {
  const name = fresh()
  const told = subscribe({ channel: "$pubsub", signed_stream_name: sign(name) })
  await until(() => told.connected > 0)
  await broadcast(name, { hello: "world" })
  await broadcast(name, [1, 2])
  await until(() => told.messages.length === 2)
  expect(told.messages).toEqual([{ hello: "world" }, [1, 2]])
})

it("is rejected politely", async () => {
  const forged = subscribe({ channel: "$pubsub", signed_stream_name: "x" })
  const unknown = subscribe({ channel: "ChatChannel" })
  await until(() => forged.rejected > 0 && unknown.rejected > 0)
})

it("is not called by those who are elsewhere", async () => {
  const [name, other] = [fresh(), fresh()]
  const told = subscribe({ channel: "$pubsub", signed_stream_name: sign(name) })
  await until(() => told.connected > 0)
  await broadcast(other, "not this")
  await broadcast(name, "this")
  await until(() => told.messages.length > 0)
  expect(told.messages).toEqual(["this"])
})

it("comes back when the server asks it to", async () => {
  const who = { user: fresh() }
  const name = fresh()
  const identifier = { channel: "$pubsub", signed_stream_name: sign(name) }
  const told = subscribe(identifier, `${URL_OF_CABLE}?jid=${token(who)}`)
  await until(() => told.connected > 0)
  await disconnect(who, true)
  await until(() => told.disconnected.length > 0)
  expect(told.disconnected).toEqual([{ willAttemptReconnect: true }])
  const before = told.connected
  showPage()
  await until(() => told.connected > before)
  await broadcast(name, "again")
  await until(() => told.messages.length > 0)
  expect(told.messages).toEqual(["again"])
})

it("stays away without a token that is good", async () => {
  const told = subscribe({ channel: "$pubsub", stream_name: fresh("open") }, `${URL_OF_CABLE}?jid=${token({}, -10)}`)
  await until(() => told.disconnected.length > 0)
  expect(told.disconnected).toEqual([{ willAttemptReconnect: false }])
})
