import { afterAll, beforeAll, expect, test } from "vitest"

import { accessibility, client, fresh, rows, start, stop, withConsole } from "../../../support/console/browser.mjs"

beforeAll(start)
afterAll(stop)

test("a stream is created, written and followed", async () => {
  const path = fresh("smoke")
  const { append, read } = client()
  await withConsole("", async (page) => {
    await page.getByRole("button", { name: "New stream" }).click()
    await page.getByLabel("Path", { exact: true }).fill(path)
    await page.getByRole("button", { name: "Create" }).click()
    await page.getByText("Live", { exact: true }).waitFor()
    await page.getByLabel("Append to the stream").fill('{"n": 1}')
    await page.getByRole("button", { name: "Append" }).click()
    await rows(page).getByText('{"n": 1}').waitFor()
    await append(path, '{"n": 12345678901234567890}')
    await rows(page).getByText("12345678901234567890").click()
    await page.locator(".json-number", { hasText: "12345678901234567890" }).waitFor()
    expect(await accessibility(page)).toEqual([])
  })
  expect(await read(path)).toBe('[{"n": 1},{"n": 12345678901234567890}]')
})
