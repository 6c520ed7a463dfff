// The console in Chromium: every page is watched for requests to elsewhere, errors and violations.
import { readFileSync } from "node:fs"
import { createRequire } from "node:module"
import { chromium } from "playwright-core"
import { expect } from "vitest"

export const { SERVER_URL: base, CHROMIUM: executablePath } = process.env
const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8")

const MILLISECONDS = Number(process.env.TIMEOUT ?? 120_000)
export const JSON_TYPE = "application/json"

export const VIEWPORTS = { desktop: { width: 1280, height: 800 }, phone: { width: 390, height: 844 } }

let browser

export async function start() {
  browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] })
}

export const stop = () => browser?.close()

/** Opens a page of the console, passes it to a function, and checks what happened meanwhile. */
export async function withConsole(hash, use, { viewport = "desktop", scheme = "light", url = base, allowed = [] } = {}) {
  const context = await browser.newContext({
    viewport: VIEWPORTS[viewport],
    colorScheme: scheme,
    permissions: ["clipboard-read", "clipboard-write"],
    reducedMotion: "reduce",
  })
  context.setDefaultTimeout(MILLISECONDS)
  const page = await context.newPage()
  const problems = []
  page.on("request", (request) => {
    if (new URL(request.url()).origin !== new URL(url).origin) problems.push(`request to ${request.url()}`)
  })
  page.on("pageerror", (error) => problems.push(`error: ${error.message}`))
  page.on("console", (message) => {
    const text = message.text()
    // The browser reports each response that is an error.
    const isStatus = /Failed to load resource|net::/.test(text)
    if (message.type() === "error" && !(isStatus && allowed.some((status) => text.includes(String(status))))) problems.push(text)
  })
  await page.addInitScript(() => {
    globalThis.violations = []
    addEventListener("securitypolicyviolation", (event) => globalThis.violations.push(`${event.violatedDirective} ${event.blockedURI}`))
  })
  try {
    await page.goto(`${url}/${hash}`)
    await page.locator("main").waitFor()
    await use(page, context)
    expect(await page.evaluate(() => globalThis.violations)).toEqual([])
    expect(problems).toEqual([])
  } finally {
    await context.close()
  }
}

/** The violations of accessibility rules that axe finds in a page. */
export async function accessibility(page) {
  await page.evaluate(axeSource)
  const { violations } = await page.evaluate(() => globalThis.axe.run({ resultTypes: ["violations"] }))
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html, failureSummary }) => `${html} ${failureSummary}`).join(" | ")}`)
}

/** Requests to the server under test. */
export function client(headers = {}) {
  const send = async (method, path, body, more = {}) => {
    const response = await fetch(`${base}${path}`, { method, body, headers: { ...headers, ...more } })
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`)
    return response
  }
  return {
    send,
    create: (path, type = JSON_TYPE, body, more = {}) => send("PUT", `/v1/stream/${path}`, body, { "content-type": type, ...more }),
    append: (path, body, type = JSON_TYPE, more = {}) => send("POST", `/v1/stream/${path}`, body, { "content-type": type, ...more }),
    read: async (path) => (await send("GET", `/v1/stream/${path}`)).text(),
  }
}

let number = 0
export const fresh = (name) => `${name}/${process.pid}-${(number += 1)}`

export const rows = (page) => page.locator(".row")

export const received = (page, count) => page.locator(`[data-received="${count}"]`).waitFor({ state: "attached" })
