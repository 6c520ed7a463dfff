// Every page in both themes, on a desktop and on a phone: no violation of accessibility rules, and a
// screenshot for people to look at.
import { join } from "node:path"
import { afterAll, beforeAll, describe, expect, test } from "vitest"
import { WebSocket } from "ws"

import { accessibility, base, client, received, rows, start, stop, VIEWPORTS, withConsole } from "../../../support/console/browser.mjs"

const { SCREENS } = process.env
const { append, create, send } = client()
const NAMES = ["Ada", "Grace", "Linus", "Barbara"]
const TEXTS = ["Shall we ship it?", "The tests are green.", "Merging now.", "Looks right to me.", "One more review, please."]
let sockets = []

const said = (n) => ({
  id: n,
  user: { name: NAMES[n % 4], roles: n % 4 ? ["member"] : ["member", "admin"] },
  text: TEXTS[n % 5],
  edited: n % 7 === 0,
  reactions: n % 3 ? {} : { "+1": (n % 5) + 1 },
})

beforeAll(async () => {
  await start()
  await create("chat/room-1", "application/json", JSON.stringify(Array.from({ length: 2_400 }, (_, n) => said(n))))
  await create("chat/room-2", "application/json", "[]").catch(() => create("chat/room-2"))
  await create("agents/run-7f3/tokens", "text/plain", "The answer\nis 42.\n")
  await create("sensors/frame", "application/octet-stream", Buffer.from(Array.from({ length: 900 }, (_, n) => (n * 7) % 256)))
  await create("orders/eu/2026", "application/json", '[{"order": 1, "sum": 12.50}]')
  for (let seq = 0; seq < 3; seq += 1) {
    await append("orders/eu/2026", `{"order": ${seq + 2}, "sum": ${seq + 1}9.00}`, "application/json", { "producer-id": "shop-1", "producer-epoch": "0", "producer-seq": `${seq}` })
  }
  await create("orders/eu/what-if", "application/json", null, { "stream-forked-from": "/v1/stream/orders/eu/2026" })
  await create("sessions/3f1c", "application/json", "[1]", { "stream-ttl": "1800" })
  await create("imports/2026-11", "text/plain", "done\n", { "stream-closed": "true" })
  for (const severity of [2, 4, 5]) {
    const identifier = { date: "2026-01-31", hazard: "storm", severity, anomaly: 12.5, polygon: [[46, 7], [46, 9], [48, 9], [46, 7]] }
    await send("POST", "/api/v1/notification", JSON.stringify({ event_type: "extreme_event", identifier, payload: { location: "s3://products/42" } }), { "content-type": "application/json" })
  }
  const subscription = { type: "pull-wake", pattern: "orders/**", wake_stream: "chat/room-2", lease_ttl_ms: 30_000, description: "Bills orders" }
  await send("PUT", "/v1/stream/__ds/subscriptions/billing", JSON.stringify(subscription), { "content-type": "application/json" })
  await Promise.all(
    ["Ada", "Grace"].map(
      (name) =>
        new Promise((resolve) => {
          const identifier = JSON.stringify({ channel: "$pubsub", stream_name: "chat/room-1" })
          const socket = new WebSocket(`${base.replace("http", "ws")}/cable`, "actioncable-v1-ext-json")
          sockets.push(socket)
          socket.on("message", (data) => {
            const { type } = JSON.parse(data)
            if (type === "welcome") socket.send(JSON.stringify({ command: "subscribe", identifier }))
            if (type !== "confirm_subscription") return
            socket.send(JSON.stringify({ command: "join", identifier, presence: { id: name.toLowerCase(), info: { name } } }))
            resolve()
          })
        }),
    ),
  )
})
afterAll(async () => {
  sockets.forEach((socket) => socket.terminate())
  await stop()
})

const PAGES = {
  streams: ["#/streams", (page) => page.getByRole("row", { name: /chat\/room-1/ }).waitFor()],
  new: ["#/streams", (page) => page.getByRole("button", { name: "New stream" }).click()],
  none: ["#/streams?prefix=nothing/", (page) => page.getByText("No stream begins with that").waitFor()],
  tail: [
    "#/stream/chat/room-1",
    async (page) => {
      await received(page, 1_000)
      const end = Date.now() + 6_000
      for (let n = 0; Date.now() < end; n += 1) await append("chat/room-1", JSON.stringify(Array.from({ length: 1 + (n % 9) }, (_, at) => said(at + n))))
      await page.getByText("Live", { exact: true }).waitFor()
    },
  ],
  message: [
    "#/stream/chat/room-1",
    async (page) => {
      await received(page, 1_000)
      await rows(page).nth(6).click()
      await page.getByLabel("The selected message").waitFor()
    },
  ],
  text: ["#/stream/agents/run-7f3/tokens", (page) => received(page, 2)],
  binary: ["#/stream/sensors/frame", (page) => rows(page).first().waitFor()],
  closed: ["#/stream/imports/2026-11", (page) => page.getByText("Ended", { exact: true }).waitFor()],
  details: ["#/stream/orders/eu/2026?tab=details", (page) => page.getByText("shop-1").waitFor()],
  delete: [
    "#/stream/orders/eu/2026",
    async (page) => {
      await received(page, 4)
      await page.getByRole("button", { name: "Delete" }).click()
    },
  ],
  cables: [
    "#/cables",
    async (page) => {
      await page.getByRole("button", { name: "chat/room-1" }).first().click()
      await page.getByRole("row", { name: /grace/ }).waitFor()
    },
  ],
  aviso: [
    "#/aviso",
    async (page) => {
      await page.getByRole("button", { name: "extreme_event" }).click()
      await page.getByRole("button", { name: "Watch" }).click()
      await rows(page).nth(2).waitFor()
      await rows(page).nth(1).click()
    },
  ],
  subscriptions: ["#/subscriptions", (page) => page.getByRole("row", { name: /billing/ }).waitFor()],
  subscription: ["#/subscriptions/billing", (page) => page.getByText("Bills orders").waitFor()],
  access: ["#/access", (page) => page.getByText("this server is open").waitFor()],
  missing: ["#/stream/no/such", (page) => page.getByText("There is no such stream").waitFor()],
}

describe.each(Object.keys(VIEWPORTS))("on a %s", (viewport) => {
  describe.each(["light", "dark"])("%s", (scheme) => {
    test.each(Object.entries(PAGES))("%s", async (name, [hash, prepare]) => {
      await withConsole(
        hash,
        async (page) => {
          await prepare(page)
          await page.screenshot({ path: join(SCREENS, `${viewport}-${scheme}-${name}.png`) })
          expect(await accessibility(page)).toEqual([])
          const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
          expect(overflow).toBeLessThanOrEqual(0)
        },
        { viewport, scheme, allowed: name === "missing" ? [404] : [] },
      )
    })
  })
})
