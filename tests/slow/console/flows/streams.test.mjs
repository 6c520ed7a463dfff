import { afterAll, beforeAll, describe, expect, test } from "vitest"

import { client, fresh, JSON_TYPE, received, rows, start, stop, withConsole } from "../../../support/console/browser.mjs"

const { append, create, send } = client()
const TEXT = "text/plain"

beforeAll(start)
afterAll(stop)

const stream = (path, query = "") => `#/stream/${path}${query}`

describe("the list", () => {
  test("shows sizes and last writes, and finds by prefix", async () => {
    const prefix = fresh("list")
    for (const name of ["a", "b"]) await create(`${prefix}/${name}`, JSON_TYPE, "[1, 2]")
    await create(`${prefix}/text`, TEXT, "hello")
    await withConsole("", async (page) => {
      await page.keyboard.press("/")
      await page.keyboard.type(`${prefix}/`)
      const found = page.locator("table.streams tbody tr")
      await expect.poll(() => found.count()).toBe(3)
      expect(await found.first().innerText()).toMatch(/application\/json\s+2\s+4 B\s+(now|\d+ s ago)/)
      expect(page.url()).toContain(encodeURIComponent(`${prefix}/`))
      // What is written while the page is open is seen.
      await append(`${prefix}/a`, "3")
      await expect.poll(() => found.first().innerText(), { timeout: 60_000 }).toMatch(/application\/json\s+3\s/)
      await page.getByRole("link", { name: `${prefix}/b` }).click()
      await page.getByRole("heading", { name: "b", exact: true }).waitFor()
    })
  })

  test("goes on to the next page", async () => {
    const prefix = fresh("many")
    // A few at a time: functions on AWS have a limited concurrency.
    for (let index = 0; index < 103; index += 1) await create(`${prefix}/${index}`)
    await withConsole(`#/streams?prefix=${prefix}/`, async (page) => {
      const found = page.locator("table.streams tbody tr")
      await expect.poll(() => found.count()).toBe(100)
      await page.getByRole("button", { name: "More streams" }).click()
      await expect.poll(() => found.count()).toBe(103)
    })
  })
})

describe("a stream", () => {
  test("is tailed live, filtered and paused", async () => {
    const path = fresh("live")
    await create(path, JSON_TYPE, '[{"old": true}]')
    await withConsole(stream(path), async (page) => {
      await received(page, 1)
      for (let index = 0; index < 20; index += 1) await append(path, JSON.stringify({ index, kind: index % 2 ? "odd" : "even" }))
      await received(page, 21)
      expect(await rows(page).last().innerText()).toContain('"index":19')
      await page.getByLabel("Filter the loaded messages").fill("ODD")
      await expect.poll(() => rows(page).count()).toBe(10)
      await page.getByLabel("Filter the loaded messages").fill("")
      await page.getByRole("button", { name: "Pause" }).click()
      await page.getByText("Paused", { exact: true }).waitFor()
      await append(path, '"while paused"')
      await page.getByRole("button", { name: "Resume" }).click()
      await received(page, 22)
    })
  })

  test("is begun at the last messages, an offset, a time and the beginning", async () => {
    const path = fresh("jump")
    await create(path, JSON_TYPE, JSON.stringify(Array.from({ length: 30 }, (_, index) => index)))
    const offset = (await append(path, "[30, 31]")).headers.get("stream-next-offset")
    await append(path, "[32]")
    await withConsole(stream(path), async (page) => {
      const go = async (kind, value, expected) => {
        await page.getByLabel("Jump to").selectOption(kind)
        if (value) await page.locator(".jump input").fill(value)
        await page.getByRole("button", { name: "Go" }).click()
        await received(page, expected)
      }
      await received(page, 33)
      await go("last", "5", 5)
      expect(await rows(page).first().innerText()).toMatch(/^28\s+28$/)
      await page.getByRole("button", { name: /Load earlier/ }).click()
      await received(page, 33)
      await go("offset", offset, 1)
      await go("beginning", "", 33)
      const local = new Date(Date.now() - 3_600_000 - new Date().getTimezoneOffset() * 60_000)
      await go("since", local.toISOString().slice(0, 19), 33)
      await go("now", "", 0)
    })
  })

  test("shows JSON that folds, as text and as hex", async () => {
    const path = fresh("json")
    await create(path, JSON_TYPE, '{"a": {"b": [1.0, 12345678901234567890, "\\u00e9"]}, "empty": {}, "long": [' + "0,".repeat(250) + "0]}")
    await withConsole(stream(path), async (page) => {
      await rows(page).first().click()
      const message = page.getByLabel("The selected message")
      expect(await message.locator(".json-number").allInnerTexts()).toEqual(["1.0", "12345678901234567890"])
      expect(await message.locator(".json-string").innerText()).toBe('"\\u00e9"')
      await message.getByRole("button", { name: /"long"/ }).click()
      await message.getByRole("button", { name: /100 more of 151/ }).click()
      await message.getByRole("button", { name: /51 more of 51/ }).click()
      expect(await message.locator(".json-number").count()).toBe(253)
      await message.getByRole("button", { name: /"a"/ }).click()
      expect(await message.locator(".json-number").count()).toBe(251)
      await message.getByRole("button", { name: "Hex" }).click()
      expect(await message.locator("pre").innerText()).toMatch(/^00000000 {2}7b 22 61 22/)
      await message.getByRole("button", { name: "Text" }).click()
      expect(await message.locator("pre").innerText()).toContain('{"a": {"b": [1.0,')
    })
  })

  test("shows lines of text, and binary data as hex", async () => {
    const text = fresh("text")
    await create(text, TEXT, "one\ntwo\n\nünf")
    await withConsole(stream(text), async (page) => {
      await received(page, 4)
      await append(text, "tig\nlast\n", TEXT)
      await received(page, 5)
      expect(await page.locator(".row-text").allInnerTexts()).toEqual(["one", "two", "", "ünftig", "last"])
      expect(await page.locator(".row-at").allInnerTexts()).toEqual(["0", "4", "8", "9", "17"])
    })
    const binary = fresh("binary")
    await create(binary, "application/octet-stream", Buffer.from(Array.from({ length: 40 }, (_, index) => index + 60)))
    await withConsole(stream(binary), async (page) => {
      await received(page, 3)
      expect(await page.locator(".row-hex").first().innerText()).toBe("3c 3d 3e 3f 40 41 42 43  44 45 46 47 48 49 4a 4b")
      await append(binary, Buffer.from([255]), "application/octet-stream")
      await expect.poll(() => page.locator(".row-hex").last().innerText()).toMatch(/ff$/)
    })
  })

  test("is shared at a message by a link", async () => {
    const path = fresh("shared")
    const offset = (await create(path, JSON_TYPE, "[1, 2, 3]")).headers.get("stream-next-offset")
    await append(path, '["x", "y", "z"]')
    let link
    await withConsole(stream(path), async (page) => {
      await rows(page).nth(4).click()
      await page.getByRole("button", { name: "Link" }).click()
      await page.getByRole("button", { name: "Copied" }).waitFor()
      link = await page.evaluate(() => navigator.clipboard.readText())
    })
    await append(path, JSON.stringify(Array.from({ length: 100 }, (_, index) => index)))
    for (const hash of [new URL(link).hash, stream(path, `?from=${offset}&at=4`)]) {
      await withConsole(hash, async (page) => {
        await page.getByRole("heading", { name: "Message 4" }).waitFor()
        expect(await page.locator(".message .json-string").innerText()).toBe('"y"')
      })
    }
  })

  test("says where its data, producers and forks are", async () => {
    const path = fresh("details")
    await create(path, JSON_TYPE, "[1]", { "stream-ttl": "3600" })
    await append(path, "[2, 3]", JSON_TYPE, { "producer-id": "shop", "producer-epoch": "2", "producer-seq": "0" })
    await withConsole(stream(path, "?tab=details"), async (page) => {
      await page.getByText("1 h without use").waitFor()
      await page.getByRole("row", { name: "shop 2 0" }).waitFor()
      await page.getByText(/B in 2 slots/).waitFor()
      await page.getByRole("button", { name: "Fork" }).click()
      await page.getByLabel("Path of the fork").fill(`${path}/fork`)
      await page.getByRole("dialog").getByRole("button", { name: "Fork", exact: true }).click()
      await page.getByRole("heading", { name: "fork", exact: true }).waitFor()
      await received(page, 3)
      await page.getByRole("tab", { name: "Details" }).click()
      await page.getByRole("link", { name: path, exact: true }).click()
      await page.getByRole("tab", { name: "Details" }).click()
      await page.getByText("1 fork", { exact: true }).waitFor()
    })
  })

  test("is closed, and deleted once its name is typed", async () => {
    const path = fresh("end")
    await create(path, JSON_TYPE, "[1]")
    await withConsole(
      stream(path),
      async (page) => {
        await received(page, 1)
        await page.getByRole("button", { name: "Close", exact: true }).click()
        await page.getByRole("button", { name: "Close for good" }).click()
        await page.getByText("Ended", { exact: true }).waitFor()
        await page.locator(".badge.closed").waitFor()
        expect(await page.getByLabel("Append to the stream").count()).toBe(0)
        await page.getByRole("button", { name: "Delete" }).click()
        const sure = page.getByRole("dialog").getByRole("button", { name: "Delete" })
        await page.getByLabel(/to confirm/).fill(path.slice(0, -1))
        expect(await sure.isDisabled()).toBe(true)
        await page.getByLabel(/to confirm/).fill(path)
        await sure.click()
        await page.getByRole("heading", { name: "Streams" }).waitFor()
      },
      { allowed: [404] },
    )
    expect((await fetch(`${process.env.SERVER_URL}/v1/stream/${path}`)).status).toBe(404)
  })

  test("that is deleted elsewhere says so", async () => {
    const path = fresh("gone")
    await create(path, JSON_TYPE, "[1]")
    await withConsole(
      stream(path),
      async (page) => {
        await received(page, 1)
        await send("DELETE", `/v1/stream/${path}`)
        await page.getByText(/STREAM_NOT_FOUND/).first().waitFor()
      },
      { allowed: [404] },
    )
  })

  test("refuses what is no JSON, and says why", async () => {
    const path = fresh("wrong")
    await create(path)
    await withConsole(
      stream(path),
      async (page) => {
        await page.getByLabel("Append to the stream").fill("{oops")
        await page.getByRole("button", { name: "Append" }).click()
        await page.getByRole("alert").getByText("INVALID_JSON").waitFor()
        await page.getByLabel("Append to the stream").fill('"fine"')
        await page.keyboard.press("Enter")
        await received(page, 1)
      },
      { allowed: [400] },
    )
  })

  test("that does not exist says so", async () => {
    await withConsole(stream(fresh("never")), (page) => page.getByText("There is no such stream").waitFor(), { allowed: [404] })
  })

  test("is used by the keyboard alone", async () => {
    const path = fresh("keys")
    await create(path, JSON_TYPE, JSON.stringify(Array.from({ length: 500 }, (_, index) => ({ index }))))
    await withConsole(stream(path), async (page) => {
      await received(page, 500)
      await page.getByRole("listbox").focus()
      await page.keyboard.press("Home")
      await page.getByRole("heading", { name: "Message 0" }).waitFor()
      await page.keyboard.press("ArrowDown")
      await page.getByRole("heading", { name: "Message 1" }).waitFor()
      await page.keyboard.press("End")
      await page.getByRole("heading", { name: "Message 499" }).waitFor()
      expect(await page.locator(".row.selected").innerText()).toContain("499")
    })
  })
})

describe("many messages", () => {
  test("100,000 are in few elements, from the first to the last", async () => {
    const path = fresh("large")
    await create(path)
    const payload = "x".repeat(80)
    for (let batch = 0; batch < 50; batch += 1) {
      await append(path, JSON.stringify(Array.from({ length: 2_000 }, (_, index) => ({ n: batch * 2_000 + index, payload }))))
    }
    await withConsole(stream(path), async (page) => {
      await page.getByLabel("Jump to").selectOption("beginning")
      const began = Date.now()
      await page.getByRole("button", { name: "Go" }).click()
      await received(page, 100_000)
      const loaded = Date.now() - began
      const list = page.getByRole("listbox")
      const times = await list.evaluate(async (element) => {
        const frames = []
        for (let step = 0; step <= 100; step += 1) {
          const before = performance.now()
          element.scrollTop = (element.scrollHeight * step) / 100
          await new Promise(requestAnimationFrame)
          frames.push(performance.now() - before)
        }
        return frames.sort((one, other) => one - other)
      })
      console.log(`100,000 messages in ${loaded} ms; frames while scrolling: median ${times[50].toFixed(1)} ms, longest ${times[100].toFixed(1)} ms`)
      await rows(page).getByText('"n":99999,').waitFor()
      expect(await rows(page).count()).toBeLessThan(100)
      await list.focus()
      await page.keyboard.press("Home")
      await rows(page).getByText('"n":0,').waitFor()
      await page.getByLabel("Filter the loaded messages").fill('"n":54321,')
      await expect.poll(() => rows(page).count()).toBe(1)
    })
  })

  test("1,000 a second are followed", async () => {
    const path = fresh("fast")
    await create(path)
    await withConsole(stream(path), async (page) => {
      await page.getByText("Live", { exact: true }).waitFor()
      await page.evaluate(() => {
        globalThis.frames_ = []
        let before = performance.now()
        const frame = (now) => {
          globalThis.frames_.push(now - before)
          before = now
          requestAnimationFrame(frame)
        }
        requestAnimationFrame(frame)
      })
      let sent = 0
      const began = Date.now()
      while (sent < 10_000) {
        await append(path, JSON.stringify(Array.from({ length: 50 }, (_, index) => ({ n: sent + index }))))
        sent += 50
        const early = began + sent - Date.now()
        if (early > 0) await new Promise((resolve) => setTimeout(resolve, early))
      }
      const seconds = (Date.now() - began) / 1000
      await received(page, 10_000)
      await rows(page).getByText('{"n":9999}').waitFor()
      const frames = (await page.evaluate(() => globalThis.frames_)).sort((one, other) => one - other)
      console.log(`10,000 messages in ${seconds.toFixed(1)} s; frames: median ${frames[frames.length >> 1].toFixed(1)} ms, 99 of 100 ${frames[Math.floor(frames.length * 0.99)].toFixed(1)} ms`)
      expect(await page.locator(".rate strong").getAttribute("data-rate")).toMatch(/^\d+$/)
    })
  })
})
