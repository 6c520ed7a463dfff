import { existsSync, writeFileSync } from "node:fs"
import { afterAll, beforeAll, expect, test } from "vitest"

import { client, fresh, JSON_TYPE, received, rows, start, stop, withConsole } from "../../../support/console/browser.mjs"

const { append, create } = client()
const ALLOWED = ["ERR_CONNECTION", "ERR_INCOMPLETE", "ERR_EMPTY", "ERR_SOCKET", "503"]

beforeAll(start)
afterAll(stop)

/** Asks the test around this one to do something to the server, and waits until it is done. */
async function control(action) {
  writeFileSync(process.env.CONTROL, action)
  await expect.poll(() => existsSync(process.env.CONTROL), { timeout: 120_000 }).toBe(false)
}

test("a tail loses and repeats nothing when the server restarts", async () => {
  const path = fresh("steady")
  await create(path)
  await withConsole(
    `#/stream/${path}`,
    async (page) => {
      await page.getByText("Live", { exact: true }).waitFor()
      let sent = 0
      for (let turn = 0; turn < 3; turn += 1) {
        for (let index = 0; index < 5; index += 1) await append(path, JSON.stringify({ n: sent++ }))
        await control("stop")
        await page.getByText("Reconnecting …").waitFor()
        await control("start")
        for (let index = 0; index < 5; index += 1) await append(path, JSON.stringify({ n: sent++ }), JSON_TYPE)
        await page.getByText("Live", { exact: true }).waitFor()
        await received(page, sent)
      }
      // A response that ends as planned is followed by the next one.
      await new Promise((resolve) => setTimeout(resolve, 5_000))
      await append(path, JSON.stringify({ n: sent++ }))
      await received(page, sent)
      const expected = Array.from({ length: sent }, (_, n) => `{"n":${n}}`)
      const shown = () => page.locator(".row-text").allInnerTexts()
      const last = await shown()
      expect(last).toEqual(expected.slice(-last.length))
      await page.getByRole("listbox").focus()
      await page.keyboard.press("Home")
      await rows(page).getByText('{"n":0}', { exact: true }).waitFor()
      const first = await shown()
      expect(first).toEqual(expected.slice(0, first.length))
      expect(first.length + last.length).toBeGreaterThanOrEqual(sent)
    },
    { allowed: ALLOWED },
  )
})
