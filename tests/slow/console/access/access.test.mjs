import { afterAll, beforeAll, expect, test } from "vitest"

import { accessibility, client, fresh, JSON_TYPE, received, start, stop, withConsole } from "../../../support/console/browser.mjs"

const { ADMIN, READER, SIGNED, SIGNED_STREAM } = process.env
const admin = client({ authorization: `Bearer ${ADMIN}` })
const REFUSED = { allowed: [401, 403] }

beforeAll(start)
afterAll(stop)

async function enter(page, credential) {
  await page.getByLabel("Bearer token or signed name").fill(credential)
  await page.getByRole("button", { name: "Use it" }).click()
}

test("without a credential nothing is shown, and what is missing is said", async () => {
  await withConsole(
    "",
    async (page) => {
      await page.getByRole("alert").getByText("CREDENTIALS_MISSING").waitFor()
      expect(await accessibility(page)).toEqual([])
      for (const name of ["cables", "streams"]) {
        await page.goto(`${process.env.SERVER_URL}/#/${name}`)
        await page.getByRole("alert").getByText("CREDENTIALS_MISSING").first().waitFor()
      }
      await page.getByRole("link", { name: "Enter one" }).first().click()
      await page.getByText("none", { exact: true }).waitFor()
    },
    REFUSED,
  )
})

test("a credential that is not valid is refused, and not kept", async () => {
  await withConsole(
    "#/access",
    async (page) => {
      await enter(page, "a.b.c")
      await page.getByRole("alert").getByText("BAD_CREDENTIALS").waitFor()
      expect(await page.evaluate(() => sessionStorage.length + localStorage.length)).toBe(0)
    },
    REFUSED,
  )
})

test("a reader reads, and is told what needs more", async () => {
  const path = fresh("room")
  await admin.create(path, JSON_TYPE, "[1, 2]")
  await withConsole(
    "#/access",
    async (page) => {
      const urls = []
      page.on("request", (request) => urls.push(request.url()))
      await enter(page, READER)
      await page.getByText("Token in use").waitFor()
      await page.getByLabel("For the stream").fill(path)
      await page.getByRole("button", { name: "Check" }).click()
      await page.getByRole("listitem").filter({ hasText: "may not append" }).waitFor()
      await page.getByRole("listitem").filter({ hasText: "may read it" }).waitFor()
      await page.getByRole("link", { name: path }).click()
      await received(page, 2)
      await admin.append(path, "3")
      await received(page, 3)
      await page.getByLabel("Append to the stream").fill("4")
      await page.keyboard.press("Enter")
      await page.getByRole("alert").getByText("NOT_ALLOWED").waitFor()
      await page.getByRole("tab", { name: "Details" }).click()
      await page.getByRole("alert").getByText("NOT_ALLOWED").waitFor()
      expect(urls.filter((url) => url.includes(READER.slice(0, 20)))).toEqual([])
      await page.getByText("Token in use").click()
      await page.getByRole("button", { name: "Forget it" }).click()
      expect(await page.evaluate(() => sessionStorage.length)).toBe(0)
    },
    REFUSED,
  )
})

test("a signed name reads its stream", async () => {
  await admin.create(SIGNED_STREAM, JSON_TYPE, '["secret"]')
  await withConsole(
    "#/access",
    async (page) => {
      await enter(page, SIGNED)
      await page.getByText("Signed name in use").waitFor()
      await page.getByRole("link", { name: SIGNED_STREAM }).click()
      await page.locator(".row").getByText("secret").waitFor()
    },
    REFUSED,
  )
})

test("an admin sees everything, in this tab alone", async () => {
  const path = fresh("inside")
  await admin.create(path, JSON_TYPE, "[1]")
  await withConsole("#/access", async (page, context) => {
    await enter(page, ADMIN)
    await page.getByText("Token in use").waitFor()
    await page.goto(`${process.env.SERVER_URL}/#/stream/${path}?tab=details`)
    await page.reload()
    await page.getByText(/B in 1 slot,/).waitFor()
    const other = await context.newPage()
    await other.goto(`${process.env.SERVER_URL}/#/streams`)
    await other.getByRole("alert").getByText("CREDENTIALS_MISSING").waitFor()
  }, REFUSED)
})
