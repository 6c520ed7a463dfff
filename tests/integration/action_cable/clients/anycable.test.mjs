// AnyCable's clients against the server, on both protocols.
import { createCable as createCore } from "@anycable/core"
import { createCable as createWeb } from "@anycable/web"
import { afterEach, describe, expect, it } from "vitest"
import WebSocket from "ws"
import { broadcast, disconnect, errorOf, fresh, PATIENT, remove, sign, token, until, URL_OF_CABLE } from "./tools.mjs"

const JSON_PROTOCOL = "actioncable-v1-json"
const EXTENDED = "actioncable-v1-ext-json"

const opened = []
afterEach(() => opened.splice(0).forEach((cable) => cable.disconnect()))

const creator = (create, protocol) => (options = {}) => {
  const cable = create(URL_OF_CABLE, {
    protocol,
    websocketImplementation: WebSocket,
    reconnectStrategy: () => 50,
    logLevel: "error",
    ...PATIENT,
    ...options,
  })
  opened.push(cable)
  return cable
}

/** A channel, and what it has heard. */
async function listen(cable, name) {
  const channel = cable.streamFromSigned(sign(name))
  const heard = []
  channel.on("message", (message, meta) => heard.push({ message, meta }))
  await channel.ensureSubscribed()
  return { channel, heard, messages: () => heard.map((each) => each.message) }
}

const clients = [
  ["core, the plain protocol", createCore, JSON_PROTOCOL],
  ["core, the extended protocol", createCore, EXTENDED],
]

describe.each(clients)("%s", (_, create, protocol) => {
  const newCable = creator(create, protocol)

  it("hears what is broadcast, in order", async () => {
    const name = fresh()
    const { heard, messages } = await listen(newCable(), name)
    for (let n = 1; n <= 20; n++) await broadcast(name, { n })
    await until(() => heard.length === 20)
    expect(messages()).toEqual(Array.from({ length: 20 }, (_, n) => ({ n: n + 1 })))
    if (protocol === EXTENDED) {
      expect(heard.map(({ meta }) => meta.offset)).toEqual(Array.from({ length: 20 }, (_, n) => n + 1))
      expect(heard[0].meta.stream).toBe(name)
    }
  })

  it("hears what is appended over HTTP", async () => {
    const name = fresh("open")
    const { messages } = await listen(newCable(), name)
    await broadcast(name, { first: true })
    const answer = await fetch(`${process.env.SERVER_URL}/v1/stream/${name}`)
    expect(await answer.json()).toEqual([{ first: true }])
    await until(() => messages().length === 1)
  })

  it("goes on with the next stream of its name after a deletion", async () => {
    const name = fresh()
    const { channel, heard, messages } = await listen(newCable(), name)
    await broadcast(name, "old")
    await until(() => heard.length === 1)
    await remove(name)
    await broadcast(name, "new")
    await until(() => heard.length === 2)
    expect(messages()).toEqual(["old", "new"])
    expect(channel.state).toBe("connected")
  })

  it("listens to a public stream by its name", async () => {
    const name = fresh("open")
    const channel = newCable().streamFrom(name)
    const heard = []
    channel.on("message", (message) => heard.push(message))
    await channel.ensureSubscribed()
    await broadcast(name, { hello: "world" })
    await until(() => heard.length === 1)
  })

  it("is rejected with a forged name, a private name, and an unknown channel", async () => {
    const cable = newCable()
    const forged = cable.streamFromSigned(`${sign("chat/1")}0`)
    expect((await errorOf(forged.ensureSubscribed())).name).toBe("SubscriptionRejectedError")
    const name = cable.streamFrom("chat/private")
    expect((await errorOf(name.ensureSubscribed())).name).toBe("SubscriptionRejectedError")
    const unknown = cable.subscribeTo("ChatChannel", { id: 1 })
    expect((await errorOf(unknown.ensureSubscribed())).name).toBe("SubscriptionRejectedError")
  })

  it("comes back by itself after a drop", async () => {
    const name = fresh()
    const cable = newCable()
    const { heard } = await listen(cable, name)
    const back = new Promise((resolve) => cable.on("connect", ({ reconnect }) => reconnect && resolve()))
    cable.transport.ws.terminate()
    await back
    await until(async () => {
      await broadcast(name, "again")
      return heard.length > 0
    })
  })

  it("comes back when the server asks it to, and stays away when it is told so", async () => {
    const name = fresh()
    const who = { user: fresh() }
    const cable = newCable({ auth: { token: token(who) } })
    const { heard } = await listen(cable, name)
    const back = new Promise((resolve) => cable.on("connect", ({ reconnect }) => reconnect && resolve()))
    await disconnect(who, true)
    await back
    await until(async () => {
      await broadcast(name, "again")
      return heard.length > 0
    })
    const closed = new Promise((resolve) => cable.on("close", resolve))
    await disconnect(who, false)
    expect((await closed).reason).toBe("remote")
    expect(cable.state).toBe("closed")
  })

  it("gets a new token when the old one has expired", async () => {
    const name = fresh()
    let refreshed = 0
    const cable = newCable({
      auth: { token: token({ user: 1 }, -10) },
      tokenRefresher: async (transport) => {
        refreshed++
        transport.setToken(token({ user: 1 }))
      },
    })
    const channel = cable.streamFromSigned(sign(name))
    const heard = []
    channel.on("message", (message) => heard.push(message))
    await until(() => channel.state === "connected")
    await broadcast(name, "hello")
    await until(() => heard.length === 1)
    expect(refreshed).toBe(1)
  })

  it("shows its token among the protocols", async () => {
    const cable = newCable({ auth: { token: token({ user: 1 }) }, websocketAuthStrategy: "sub-protocol" })
    await listen(cable, fresh())
    expect(cable.transport.ws.protocol).toBe(protocol)
    const forged = newCable({ auth: { token: "x.y.z" }, websocketAuthStrategy: "sub-protocol" })
    expect((await errorOf(forged.connect())).reason).toBe("unauthorized")
  })

  it("whispers to the others", async () => {
    const name = fresh()
    const [one, two] = [await listen(newCable(), name), await listen(newCable(), name)]
    one.channel.whisper({ typing: true })
    await until(() => two.heard.length === 1)
    expect(two.messages()).toEqual([{ typing: true }])
    await broadcast(name, "later")
    await until(() => one.heard.length === 1)
    expect(one.messages()).toEqual(["later"])
  })
})

it("hears what is broadcast with the client for browsers", async () => {
  const name = fresh()
  const { messages } = await listen(creator(createWeb, EXTENDED)(), name)
  await broadcast(name, "hello")
  await until(() => messages().length === 1)
  expect(messages()).toEqual(["hello"])
})

describe("core, the extended protocol alone", () => {
  const newCable = creator(createCore, EXTENDED)

  const resumes = async (options, restored) => {
    const name = fresh()
    const cable = newCable(options)
    const { heard, messages } = await listen(cable, name)
    const welcomes = []
    const received = cable.protocol.receive.bind(cable.protocol)
    cable.protocol.receive = (message) => {
      if (message.type === "welcome") welcomes.push(message)
      return received(message)
    }
    let sent = 0
    for (let round = 1; round <= 3; round++) {
      await broadcast(name, { n: ++sent })
      await until(() => heard.length === sent)
      cable.transport.ws.terminate()
      await broadcast(name, { n: ++sent })
      await broadcast(name, { n: ++sent })
      await until(() => heard.length === sent)
    }
    await broadcast(name, { n: ++sent })
    await until(() => heard.length === sent)
    expect(messages().map(({ n }) => n)).toEqual(Array.from({ length: sent }, (_, n) => n + 1))
    expect(welcomes.length).toBe(3)
    expect(welcomes.every((welcome) => !!welcome.restored === restored)).toBe(true)
  }

  it("resumes its session after drops, and misses nothing", () => resumes({ auth: { token: token({ user: 7 }) } }, process.env.RESTORES === "true"))

  it("subscribes again after drops where nobody says who it is, and misses nothing", () => resumes({}, false))

  it("hears what came since a time", async () => {
    const name = fresh()
    await broadcast(name, "one")
    await broadcast(name, "two")
    const cable = newCable({ historyTimestamp: Math.floor(Date.now() / 1000) - 60 })
    const { heard, messages } = await listen(cable, name)
    await until(() => heard.length === 2)
    await broadcast(name, "three")
    await until(() => heard.length === 3)
    expect(messages()).toEqual(["one", "two", "three"])
  })

  it("is told when its place in a stream is not to be found", async () => {
    const name = fresh()
    const cable = newCable()
    await listen(cable, name)
    const told = []
    cable.hub.subscriptions.all().forEach((each) => each.channels.forEach((c) => c.on("info", (info) => told.push(info.type))))
    const [identifier] = cable.hub.subscriptions.all().map((each) => each.id)
    cable.send({ command: "history", identifier, history: { streams: { [name]: { epoch: "beef", offset: 3 } } } })
    await until(() => told.includes("history_not_found"))
  })

  it("knows who is there", async () => {
    const name = fresh()
    const [one, two] = [await listen(newCable(), name), await listen(newCable(), name)]
    const seen = []
    one.channel.on("presence", (event) => seen.push(event))
    await one.channel.presence.join("ada", { name: "Ada" })
    await until(() => seen.length === 1)
    expect(seen[0]).toEqual({ type: "join", id: "ada", info: { name: "Ada" } })
    await two.channel.presence.join("bob", { name: "Bob" })
    await until(() => seen.length === 2)
    expect(await one.channel.presence.info()).toEqual({ ada: { name: "Ada" }, bob: { name: "Bob" } })
    await two.channel.presence.leave()
    await until(() => seen.some((event) => event.type === "leave" && event.id === "bob"))
    expect(await one.channel.presence.info()).toEqual({ ada: { name: "Ada" } })
  })

  it("counts as there for a while after a drop, and then no longer", async () => {
    const name = fresh()
    const dropped = newCable()
    const [one, two] = [await listen(newCable(), name), await listen(dropped, name)]
    const seen = []
    one.channel.on("presence", (event) => seen.push(event.type))
    await two.channel.presence.join("bob", {})
    await until(() => seen.length === 1)
    dropped.disconnect()
    await until(() => seen.length === 2)
    expect(seen).toEqual(["join", "leave"])
  })
})
