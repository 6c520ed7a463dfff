// The live tail of a stream: its messages in a virtual list, and the selected one beside it.

import type { JSX } from "preact"
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks"
import { append, streamUrl, type StreamHead } from "../api"
import { bytes, clock, count, plural } from "../format"
import { useAction } from "../hooks"
import { JsonView } from "../json-view"
import { hex, hexDump, lengthAt, MessageLog, modeOf, type Mode, type Row } from "../messages"
import { Button, Copy, Empty, Problem } from "../parts"
import { RateChart } from "../rate-chart"
import { streamLink } from "../router"
import { follow, type FollowState, type Start } from "../sse"
import { VirtualList } from "../virtual-list"

/** How much is read at first: messages, or bytes. */
const FIRST: Record<Mode, number> = { json: 1000, text: 64_000, binary: 16_000 }
/** How much is read before a message that a link names. */
const BEFORE_SHARED = 20
const BEGINNING: Start = { offset: "-1" }

type Jump = "last" | "offset" | "since" | "beginning" | "now"

const JUMPS: Record<Jump, string> = {
  last: "Last",
  since: "Since",
  offset: "Offset",
  beginning: "Beginning",
  now: "Only new",
}

interface Props {
  path: string
  head: StreamHead
  query: URLSearchParams
  onEnded(): void
}

export function Tail({ path, head, query, onEnded }: Props): JSX.Element {
  const mode = modeOf(head.contentType)
  const from = query.get("from")
  const wanted = query.get("at")
  const [start, setStart] = useState<Start>(() => {
    if (from) return { offset: from }
    const first = wanted === null ? FIRST[mode] : lengthAt(head.nextOffset) - Number(wanted) + BEFORE_SHARED
    return { last: String(Math.max(1, first)) }
  })
  const [paused, setPaused] = useState(false)
  const [pinned, setPinned] = useState(!from && wanted === null)
  const [selected, setSelected] = useState<number | null>(null)
  const [filter, setFilter] = useState("")
  const [state, setState] = useState<FollowState>({ name: "connecting" })
  const { log, version, totals } = useFollowed(path, start, mode, paused, setState, onEnded)

  const matches = useMatches(log, version, filter)
  const rowAt = (index: number): Row => log.rows[matches ? matches[index]! : index]!
  const shown = matches ? matches.length : log.rows.length
  const dropped = matches ? 0 : log.dropped

  // Selections are numbers of rows since the beginning, so that they stay when rows are dropped.
  const selectedIndex = selected === null ? null : selected - dropped
  const row = selectedIndex !== null && selectedIndex >= 0 && selectedIndex < shown ? rowAt(selectedIndex) : null

  useEffect(() => {
    // A shared link names a message: select it once it is there.
    if (wanted === null || selected !== null) return
    const index = log.rows.findIndex((each) => each.at === Number(wanted))
    if (index >= 0) {
      setSelected(index + log.dropped)
      setPinned(false)
    }
  }, [version])

  const jump = (next: Start): void => {
    setSelected(null)
    setPinned(!("offset" in next) || next.offset === "now")
    setPaused(false)
    setStart({ ...next })
  }
  const first = log.rows[0]
  const hasEarlier = first !== undefined && !filter && first.at > lengthAt(head.earliestOffset)
  const earlier = (): void => jump({ last: String(lengthAt(head.nextOffset) - first!.at + FIRST[mode]) })

  return (
    <div class={row ? "tail with-message" : "tail"}>
      <div class="toolbar">
        <JumpForm mode={mode} onJump={jump} />
        <input
          class="filter"
          type="search"
          placeholder="Filter what is loaded"
          aria-label="Filter the loaded messages"
          value={filter}
          onInput={(event) => {
            setFilter(event.currentTarget.value)
            setSelected(null)
          }}
        />
        <Button
          icon={paused ? "play" : "pause"}
          label={paused ? "Resume" : "Pause"}
          disabled={state.name === "closed" || state.name === "deleted"}
          onClick={() => setPaused(!paused)}
        />
        <State state={state} paused={paused} />
        <RateChart totals={totals} mode={mode} />
      </div>
      {state.name === "failed" && <Problem error={state.error} />}
      <div class="tail-body">
        <div class="tail-list">
          {hasEarlier && (
            <button type="button" class="earlier" onClick={earlier}>
              Load earlier than {count(first.at)}
            </button>
          )}
          {shown === 0 && state.name !== "connecting" && state.name !== "failed" && (
            <Empty title={filter ? "Nothing matches" : "Nothing here yet"}>{!filter && <p>What is appended appears at once.</p>}</Empty>
          )}
          <VirtualList
            label={`Messages of ${path}`}
            count={shown}
            dropped={dropped}
            pinned={pinned}
            onPinned={setPinned}
            selected={selectedIndex}
            onSelect={(index) => {
              setSelected(index + dropped)
              // The view stays at what is looked at.
              if (index < shown - 1) setPinned(false)
            }}
            row={(index) => <RowView row={rowAt(index)} mode={mode} />}
          />
          {!pinned && shown > 0 && (
            <div class="to-end">
              <Button icon="down" label="To the newest" kind="primary" onClick={() => setPinned(true)} />
            </div>
          )}
        </div>
        {row && <Message key={`${row.at} ${row.size}`} row={row} mode={mode} path={path} onClose={() => setSelected(null)} />}
      </div>
      <footer class="tail-foot">
        <span class="faint" data-shown={shown} data-received={log.received}>
          {filter ? `${count(shown)} of ` : ""}
          {plural(log.rows.length, mode === "json" ? "message" : mode === "text" ? "line" : "row")} loaded
          {log.dropped > 0 && `, ${count(log.dropped)} older dropped`}
        </span>
        {!head.closed && state.name !== "closed" && <Composer path={path} contentType={head.contentType} mode={mode} />}
      </footer>
    </div>
  )
}

/** Follows a stream from a start; gives the log, a version that changes with it, and totals. */
function useFollowed(
  path: string,
  start: Start,
  mode: Mode,
  paused: boolean,
  onState: (state: FollowState) => void,
  onEnded: () => void,
): { log: MessageLog; version: number; totals: () => { rows: number; bytes: number } } {
  const [version, setVersion] = useState(0)
  const log = useMemo(() => new MessageLog(mode, "offset" in start && start.offset !== "now" ? start.offset : ""), [start, mode])
  const position = useRef<Start>(start)
  const live = useRef({ rows: 0, bytes: 0 })
  useEffect(() => {
    position.current = start
  }, [start])
  useEffect(() => {
    if (paused) return undefined
    let frame = 0
    let caughtUp = false
    const stop = follow(streamUrl(path), position.current, {
      batch(data, control, isBase64) {
        const { received, receivedBytes } = log
        log.push(data, control.streamNextOffset, isBase64, caughtUp ? Date.now() : 0)
        if (caughtUp) {
          live.current.rows += log.received - received
          live.current.bytes += log.receivedBytes - receivedBytes
        }
        caughtUp ||= control.upToDate === true
        position.current = { offset: control.streamNextOffset }
        frame ||= requestAnimationFrame(() => {
          frame = 0
          setVersion((before) => before + 1)
        })
      },
      state(state) {
        onState(state)
        if (state.name === "closed" || state.name === "deleted") onEnded()
      },
    })
    return () => {
      cancelAnimationFrame(frame)
      stop()
    }
  }, [path, log, paused])
  const totals = useCallback(() => ({ ...live.current }), [])
  return { log, version, totals }
}

/** The indices of the rows with a text; null: there is no filter. */
function useMatches(log: MessageLog, version: number, filter: string): number[] | null {
  const kept = useRef<{ log: MessageLog; filter: string; dropped: number; seen: number; found: number[] } | null>(null)
  if (!filter) {
    kept.current = null
    return null
  }
  const wanted = filter.toLowerCase()
  let memory = kept.current
  if (!memory || memory.log !== log || memory.filter !== filter || memory.dropped !== log.dropped) {
    memory = kept.current = { log, filter, dropped: log.dropped, seen: 0, found: [] }
  }
  void version
  for (; memory.seen < log.rows.length; memory.seen += 1) {
    if (log.rows[memory.seen]!.text.toLowerCase().includes(wanted)) memory.found.push(memory.seen)
  }
  return memory.found
}

function State({ state, paused }: { state: FollowState; paused: boolean }): JSX.Element {
  const name = paused && state.name !== "closed" && state.name !== "deleted" ? "paused" : state.name
  const text = {
    connecting: "Connecting …",
    live: "Live",
    waiting: "Reconnecting …",
    closed: "Ended",
    deleted: "Deleted",
    failed: "Not allowed or not there",
    paused: "Paused",
  }[name]
  return (
    <span class={`state ${name}`} role="status" title={state.name === "waiting" ? state.why : ""}>
      <i aria-hidden="true" />
      {text}
    </span>
  )
}

function JumpForm({ mode, onJump }: { mode: Mode; onJump: (start: Start) => void }): JSX.Element {
  const [kind, setKind] = useState<Jump>("last")
  const [value, setValue] = useState("")
  const submit = (event: Event): void => {
    event.preventDefault()
    const text = value.trim()
    if (kind === "beginning") onJump(BEGINNING)
    else if (kind === "now") onJump({ offset: "now" })
    else if (kind === "last") onJump({ last: text || String(FIRST[mode]) })
    else if (kind === "since") onJump({ since: new Date(text).toISOString() })
    else onJump({ offset: text })
  }
  return (
    <form class="jump" onSubmit={submit}>
      <select
        aria-label="Jump to"
        value={kind}
        onChange={(event) => {
          setKind(event.currentTarget.value as Jump)
          setValue("")
        }}
      >
        {Object.entries(JUMPS).map(([each, name]) => (
          <option key={each} value={each}>
            {name}
          </option>
        ))}
      </select>
      {kind === "last" && (
        <input type="number" min="1" aria-label={mode === "json" ? "How many messages" : "How many bytes"} placeholder={`${count(FIRST[mode])} ${mode === "json" ? "messages" : "bytes"}`} value={value} onInput={(event) => setValue(event.currentTarget.value)} />
      )}
      {kind === "since" && <input type="datetime-local" step="1" required aria-label="The time, in yours" value={value} onInput={(event) => setValue(event.currentTarget.value)} />}
      {kind === "offset" && <input required spellcheck={false} aria-label="The offset" placeholder="0000000000000000_0000000000000000" value={value} onInput={(event) => setValue(event.currentTarget.value)} />}
      <button class="button">Go</button>
    </form>
  )
}

const LINE_CHARACTERS = 400

function RowView({ row, mode }: { row: Row; mode: Mode }): JSX.Element {
  return (
    <>
      <span class="row-at">{mode === "binary" ? row.at.toString(16).padStart(8, "0") : count(row.at)}</span>
      {mode === "binary" && row.bytes && <span class="row-hex">{hex(row.bytes)}</span>}
      <span class="row-text">{row.text.slice(0, LINE_CHARACTERS)}</span>
      {row.seen > 0 && <time class="row-time">{clock(row.seen)}</time>}
    </>
  )
}

const encoder = new TextEncoder()

function Message({ row, mode, path, onClose }: { row: Row; mode: Mode; path: string; onClose: () => void }): JSX.Element {
  const [view, setView] = useState<"json" | "text" | "hex">(mode === "json" ? "json" : mode === "text" ? "text" : "hex")
  const link = (): string => `${location.origin}${location.pathname}${streamLink(path, { ...(row.from && { from: row.from }), at: String(row.at) })}`
  return (
    <aside class="message" aria-label="The selected message" onKeyDown={(event) => event.key === "Escape" && onClose()}>
      <header>
        <h2>
          {mode === "json" ? "Message" : "Byte"} {count(row.at)}
        </h2>
        <span class="faint">
          {bytes(row.size)}
          {row.seen > 0 && ` · ${clock(row.seen)}`}
        </span>
        <Button icon="close" label="Close the message" hideLabel kind="quiet" onClick={onClose} />
      </header>
      <div class="message-tools">
        <div class="segmented" role="group" aria-label="Show as">
          {(["json", "text", "hex"] as const)
            .filter((each) => each !== "json" || mode === "json")
            .map((each) => (
              <button key={each} type="button" aria-pressed={view === each} onClick={() => setView(each)}>
                {{ json: "JSON", text: "Text", hex: "Hex" }[each]}
              </button>
            ))}
        </div>
        <Copy label="Copy" text={() => row.text} />
        <Copy label="Link" icon="link" text={link} />
      </div>
      <div class="message-body" tabIndex={0} role="region" aria-label="Its content">
        {view === "json" && <JsonView text={row.text} />}
        {view === "text" && <pre class="raw">{row.text}</pre>}
        {view === "hex" && <pre class="raw">{hexDump(row.bytes ?? encoder.encode(row.text), row.bytes ? row.at : 0)}</pre>}
      </div>
      {row.from && (
        <p class="faint message-offset">
          read from offset <code>{row.from}</code>
        </p>
      )}
    </aside>
  )
}

function Composer({ path, contentType, mode }: { path: string; contentType: string; mode: Mode }): JSX.Element {
  const [body, setBody] = useState("")
  const { busy, error, run, clear } = useAction()
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault()
    if (!body) return
    if (await run(() => append(path, contentType, mode === "text" && !body.endsWith("\n") ? `${body}\n` : body))) setBody("")
  }
  return (
    <form class="composer" onSubmit={submit}>
      <textarea
        rows={1}
        aria-label="Append to the stream"
        placeholder={mode === "json" ? "Append JSON" : "Append text"}
        spellcheck={false}
        value={body}
        onInput={(event) => {
          setBody(event.currentTarget.value)
          if (error) clear()
        }}
        onKeyDown={(event) => {
          if (event.key === "Enter" && (event.metaKey || event.ctrlKey || !body.includes("\n")) && !event.shiftKey) void submit(event)
        }}
      />
      <button class="button primary" disabled={busy || !body}>
        Append
      </button>
      {error && <Problem error={error} />}
    </form>
  )
}
