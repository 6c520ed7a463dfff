import { afterAll, beforeAll, expect, test } from "vitest"
import { WebSocket } from "ws"

import { base, client, fresh, start, stop, withConsole } from "../../../support/console/browser.mjs"

const { send } = client()

beforeAll(start)
afterAll(stop)

/** A client of Action Cable that is present in a stream; gives what it gets. */
function connect(stream, member) {
  const identifier = JSON.stringify({ channel: "$pubsub", stream_name: stream })
  const socket = new WebSocket(`${base.replace("http", "ws")}/cable`, "actioncable-v1-ext-json")
  const got = []
  const isPresent = new Promise((resolve, reject) => {
    socket.on("error", reject)
    socket.on("message", (data) => {
      const message = JSON.parse(data)
      if (message.type === "welcome") socket.send(JSON.stringify({ command: "subscribe", identifier }))
      else if (message.type === "confirm_subscription") {
        socket.send(JSON.stringify({ command: "join", identifier, presence: { id: member, info: { name: "Ada" } } }))
        resolve()
      } else if (message.message) got.push(message.message)
    })
  })
  return { socket, got, isPresent }
}

test("cables: connections, presence and a broadcast", async () => {
  const stream = fresh("room")
  const { socket, got, isPresent } = connect(stream, "ada-1")
  try {
    await isPresent
    await withConsole("#/cables", async (page) => {
      await page.getByRole("button", { name: stream }).click()
      await page.getByRole("row", { name: /ada-1.*Ada/ }).waitFor()
      await page.getByLabel("Data").fill('{"text": "from the console"}')
      await page.getByRole("button", { name: "Send" }).click()
      await page.getByText("1 broadcast sent").waitFor()
      await expect.poll(() => got, { timeout: 60_000 }).toContainEqual({ text: "from the console" })
      await page.getByRole("link", { name: "Its log" }).click()
      await page.locator(".row").getByText("from the console").waitFor()
    })
    socket.close()
    await withConsole("#/cables", async (page) => {
      await expect.poll(() => page.getByRole("button", { name: stream }).count(), { timeout: 60_000 }).toBe(0)
    })
  } finally {
    socket.terminate()
  }
})

const notify = (severity, hazard = "storm") =>
  send(
    "POST",
    "/api/v1/notification",
    JSON.stringify({
      event_type: "extreme_event",
      identifier: { date: "2026-01-31", hazard, severity, anomaly: 1.5, polygon: [[46, 7], [46, 9], [48, 9], [46, 7]] },
    }),
    { "content-type": "application/json" },
  )

test("aviso: event types, and notifications as they come", async () => {
  await notify(2)
  await notify(5)
  await withConsole("#/aviso", async (page) => {
    await page.getByRole("button", { name: "extreme_event" }).click()
    await page.getByLabel("severity").fill('{"gte": 4}')
    await page.getByLabel("hazard").selectOption("storm")
    await page.getByRole("button", { name: "Watch" }).click()
    await page.getByText("Live", { exact: true }).waitFor()
    const before = await page.locator(".row").count()
    expect(before).toBeGreaterThan(0)
    await notify(3)
    await notify(6)
    await expect.poll(() => page.locator(".row").count(), { timeout: 60_000 }).toBe(before + 1)
    await page.locator(".row").last().click()
    await page.locator(".message .json-string", { hasText: '"6"' }).waitFor()
    await page.getByRole("button", { name: "Stop" }).click()
    await page.getByText("Ended", { exact: true }).waitFor()
  })
})

test("aviso: a filter that is not valid is named", async () => {
  await withConsole(
    "#/aviso",
    async (page) => {
      await page.getByRole("button", { name: "extreme_event" }).click()
      await page.getByLabel("severity").fill("99")
      await page.getByRole("button", { name: "Watch" }).click()
      await page.getByRole("alert").getByText("INVALID_WATCH_REQUEST").waitFor()
    },
    { allowed: [400] },
  )
})

test("subscriptions: how they are", async () => {
  const id = fresh("worker").replace("/", "-")
  const path = fresh("work")
  const body = { type: "pull-wake", streams: [`${path}/one`], wake_stream: `${path}/wakes`, lease_ttl_ms: 30_000 }
  for (const name of ["one", "wakes"]) await send("PUT", `/v1/stream/${path}/${name}`, "[1]", { "content-type": "application/json" })
  await send("PUT", `/v1/stream/__ds/subscriptions/${id}`, JSON.stringify(body), { "content-type": "application/json" })
  await withConsole("#/subscriptions", async (page) => {
    await page.getByRole("row", { name: new RegExp(`${id}.*active`) }).waitFor()
    await page.getByRole("link", { name: id }).click()
    await page.getByRole("row", { name: new RegExp(`${path}/one`) }).waitFor()
    await page.getByText("30 s").waitFor()
  })
})

test("the theme is chosen, and kept", async () => {
  await withConsole("", async (page) => {
    const background = () => page.evaluate(() => getComputedStyle(document.body.parentElement).backgroundColor)
    const light = await background()
    await page.getByRole("button", { name: "Theme: auto" }).click()
    await page.getByRole("button", { name: "Theme: light" }).click()
    await page.getByRole("button", { name: "Theme: dark" }).waitFor()
    await expect.poll(background).not.toBe(light)
    const dark = await background()
    await page.reload()
    await page.getByRole("button", { name: "Theme: dark" }).waitFor()
    await expect.poll(background).toBe(dark)
  })
})

test("every other client gets plain text", async () => {
  const answer = await fetch(`${base}/`, { headers: { accept: "*/*" } })
  expect(answer.headers.get("content-type")).toBe("text/plain; charset=utf-8")
  expect(await answer.text()).toMatch(/^Tailrace .*, a Durable Streams server/)
})

test("files are compressed, and kept for good", async () => {
  const page = await (await fetch(`${base}/`, { headers: { accept: "text/html" } })).text()
  for (const [, path] of page.matchAll(/(?:src|href)="(\/console\/[^"]+)"/g)) {
    const answer = await fetch(`${base}${path}`, { headers: { "accept-encoding": "br" } })
    expect(answer.headers.get("cache-control")).toBe("public, max-age=31536000, immutable")
    expect(answer.headers.get("x-content-type-options")).toBe("nosniff")
    if (!path.endsWith(".svg")) expect(answer.headers.get("content-encoding")).toBe("br")
  }
})
