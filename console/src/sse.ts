// Server-sent events by `fetch`: an EventSource cannot send credentials in headers.

import { ApiError, send } from "./api"

export interface ServerEvent {
  event: string
  data: string
}

/** The events of a response, as they come. */
export async function* events(response: Response): AsyncGenerator<ServerEvent> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader()
  let rest = ""
  let event = "message"
  let lines: string[] = []
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return
    const text = rest + value
    let begin = 0
    for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n", begin)) {
      const line = text.slice(begin, end)
      begin = end + 1
      if (line === "") {
        if (lines.length) yield { event, data: lines.join("\n") }
        event = "message"
        lines = []
      } else if (line.startsWith("data:")) {
        lines.push(line.slice(line.charCodeAt(5) === 32 ? 6 : 5))
      } else if (line.startsWith("event:")) {
        event = line.slice(6).trim()
      }
    }
    rest = text.slice(begin)
  }
}

export type FollowState =
  | { name: "connecting" }
  | { name: "live" }
  | { name: "waiting"; seconds: number; why: string }
  | { name: "closed" }
  | { name: "deleted" }
  | { name: "failed"; error: ApiError }

export interface Control {
  streamNextOffset: string
  upToDate?: boolean
  streamClosed?: boolean
}

export interface FollowHandlers {
  /** Data that counts, since its control event has come. */
  batch(data: string[], control: Control, isBase64: boolean): void
  state(state: FollowState): void
}

/** Where a read begins: parameters of the query. */
export type Start = { offset: string } | { last: string } | { since: string }

const MOST_SECONDS = 15

/** Follows a stream until it is stopped, over drops, lifetimes and restarts. Returns the stop. */
export function follow(url: string, start: Start, handlers: FollowHandlers): () => void {
  const controller = new AbortController()
  const { signal } = controller
  let position: Start = start
  let failures = 0

  const read = async (): Promise<boolean> => {
    const query = new URLSearchParams({ ...position, live: "sse" })
    const response = await send(`${url}?${query}`, { signal })
    if (response.status === 204) {
      handlers.state({ name: "closed" })
      return false
    }
    const isBase64 = response.headers.get("stream-sse-data-encoding") === "base64"
    handlers.state({ name: "live" })
    let data: string[] = []
    for await (const each of events(response)) {
      if (each.event === "data") {
        data.push(each.data)
      } else if (each.event === "control") {
        const control = JSON.parse(each.data) as Control
        failures = 0
        position = { offset: control.streamNextOffset }
        handlers.batch(data, control, isBase64)
        data = []
        if (control.streamClosed) {
          handlers.state({ name: "closed" })
          return false
        }
      } else if (each.event === "deleted") {
        handlers.state({ name: "deleted" })
        return false
      }
    }
    return true
  }

  const run = async (): Promise<void> => {
    handlers.state({ name: "connecting" })
    for (;;) {
      let why = "the connection ended"
      let least = 0
      try {
        const began = performance.now()
        if (!(await read())) return
        // A response of some seconds has ended as planned: the next one follows at once.
        if (performance.now() - began > 1000) continue
      } catch (error) {
        if (signal.aborted) return
        if (error instanceof ApiError) {
          if (!error.isTemporary) {
            handlers.state({ name: "failed", error })
            return
          }
          why = error.message
          least = error.retryAfter
        }
      }
      failures += 1
      const seconds = Math.max(least, Math.min(MOST_SECONDS, 0.5 * 2 ** Math.min(failures, 6) * (0.5 + Math.random() / 2)))
      handlers.state({ name: "waiting", seconds, why })
      await new Promise((resolve) => {
        setTimeout(resolve, seconds * 1000)
        signal.addEventListener("abort", resolve)
      })
      if (signal.aborted) return
    }
  }
  void run()
  return () => controller.abort()
}
