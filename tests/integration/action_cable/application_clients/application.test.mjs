// @vitest-environment jsdom
// Stock clients and a channel of the application.
import { Channel, createCable } from "@anycable/core"
import { adapters, ConnectionMonitor, createConsumer } from "@rails/actioncable"
import { afterEach, describe, expect, it } from "vitest"
import WebSocket from "ws"
import { broadcast, errorOf, fresh, PATIENT, until, URL_OF_CABLE } from "../clients/tools.mjs"

adapters.WebSocket = WebSocket
ConnectionMonitor.staleThreshold = 600

class ChatChannel extends Channel {
  static identifier = "ChatChannel"
}

const opened = []
afterEach(() => opened.splice(0).forEach((each) => each.disconnect()))

/** Subscribes with the client of Rails. */
function withRails(room) {
  const consumer = createConsumer(URL_OF_CABLE)
  opened.push(consumer)
  const heard = []
  const outcome = new Promise((resolve) => {
    const callbacks = {
      connected: () => resolve("confirmed"),
      rejected: () => resolve("rejected"),
      received: (message) => heard.push(message),
    }
    consumer.subscriptions.create({ channel: "ChatChannel", room }, callbacks)
  })
  const perform = (action, data) => consumer.subscriptions.subscriptions[0].perform(action, data)
  return { heard, outcome, perform }
}

/** Subscribes with the client of AnyCable. */
const withAnyCable = (protocol) => (room) => {
  const cable = createCable(URL_OF_CABLE, {
    protocol,
    websocketImplementation: WebSocket,
    reconnectStrategy: () => 50,
    logLevel: "error",
    ...PATIENT,
  })
  opened.push(cable)
  const heard = []
  const channel = new ChatChannel({ room })
  channel.on("message", (message) => heard.push(message))
  cable.subscribe(channel)
  const outcome = errorOf(channel.ensureSubscribed()).then((error) => (error ? "rejected" : "confirmed"))
  return { cable, heard, outcome, perform: (action, data) => channel.perform(action, data) }
}

const clients = [
  ["Rails", withRails],
  ["AnyCable, the plain protocol", withAnyCable("actioncable-v1-json")],
  ["AnyCable, the extended protocol", withAnyCable("actioncable-v1-ext-json")],
]

it.each(clients)("talks to a channel: %s", async (_, subscribe) => {
  const room = fresh()
  const { heard, outcome, perform } = subscribe(room)
  expect(await outcome).toBe("confirmed")
  await broadcast(`rooms/${room}`, { hello: "world" })
  await until(() => heard.length === 1)
  perform("echo", { text: "one" })
  await until(() => heard.length === 2)
  perform("echo", { text: "two" })
  await until(() => heard.length === 3)
  expect(heard).toEqual([
    { hello: "world" },
    { echo: "one", user: "anonymous", count: 1 },
    { echo: "two", user: "anonymous", count: 2 },
  ])
})

it.each(clients.slice(0, 2))("is rejected by a channel: %s", async (_, subscribe) => {
  expect(await subscribe("secret").outcome).toBe("rejected")
})

describe("AnyCable, the extended protocol alone", () => {
  it("resumes its session after a drop, with the state of its channel, and misses nothing", async () => {
    const room = fresh()
    const { cable, heard, outcome, perform } = withAnyCable("actioncable-v1-ext-json")(room)
    expect(await outcome).toBe("confirmed")
    await broadcast(`rooms/${room}`, 1)
    perform("echo", { text: "before" })
    await until(() => heard.length === 2)
    cable.transport.ws.terminate()
    await broadcast(`rooms/${room}`, 2)
    await until(() => heard.length === 3)
    perform("echo", { text: "after" })
    await until(() => heard.length === 4)
    expect(heard[2]).toBe(2)
    expect(heard[3].count).toBe(2)
  })
})
