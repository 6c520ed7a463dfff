// @vitest-environment jsdom
// Turbo in a page, with AnyCable's element for streams.
import { start } from "@anycable/turbo-stream"
import { createCable } from "@anycable/web"
import "@hotwired/turbo"
import { afterAll, expect, it } from "vitest"
import WebSocket from "ws"
import { broadcast, fresh, PATIENT, sign, until, URL_OF_CABLE } from "./tools.mjs"

const cable = createCable(URL_OF_CABLE, { websocketImplementation: WebSocket, logLevel: "error", ...PATIENT })
start(cable)
afterAll(() => cable.disconnect())

/** An element that listens to a stream, as turbo_stream_from writes it. */
function streamFrom(signed) {
  const element = document.createElement("turbo-cable-stream-source")
  element.setAttribute("channel", "Turbo::StreamsChannel")
  element.setAttribute("signed-stream-name", signed)
  document.body.append(element)
  return element
}

it("changes the page by what is broadcast", async () => {
  const name = fresh()
  document.body.innerHTML = '<ul id="list"></ul>'
  const element = streamFrom(sign(name))
  await until(() => element.hasAttribute("connected"))
  const item = (text) =>
    `<turbo-stream action="append" target="list"><template><li>${text}</li></template></turbo-stream>`
  await broadcast(name, item("one"))
  await broadcast(name, item("two &amp; three"))
  await until(() => document.querySelectorAll("#list li").length === 2)
  expect([...document.querySelectorAll("#list li")].map((li) => li.textContent)).toEqual(["one", "two & three"])
  element.remove()
})

it("hears nothing with a forged name", async () => {
  const name = fresh()
  const forged = streamFrom(`${sign(name)}0`)
  const good = streamFrom(sign(name))
  await until(() => good.hasAttribute("connected"))
  expect(forged.hasAttribute("connected")).toBe(false)
})
