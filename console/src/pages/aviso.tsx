import type { JSX } from "preact"
import { useEffect, useRef, useState } from "preact/hooks"
import { ApiError, eventTypes, send, type EventType, type FieldSchema } from "../api"
import { clock, count, plural } from "../format"
import { useLoaded } from "../hooks"
import { JsonView } from "../json-view"
import { Badge, Button, Empty, Field, Loading, Problem } from "../parts"
import { streamLink } from "../router"
import { events } from "../sse"
import { VirtualList } from "../virtual-list"

export function AvisoPage(): JSX.Element {
  const { value, error } = useLoaded(eventTypes, [])
  const [chosen, setChosen] = useState<string | null>(null)
  const name = chosen ?? value?.event_types[0] ?? null
  return (
    <div class="page aviso-page">
      <header class="head">
        <h1>Aviso</h1>
        <p class="lead">Notifications about data: choose an event type, narrow it, and watch.</p>
      </header>
      {error && (error.status === 404 ? <Empty title="No Aviso here" /> : <Problem error={error} />)}
      {!value && !error && <Loading />}
      {value && (
        <div class="segmented types" role="group" aria-label="Event types">
          {value.event_types.map((each) => (
            <button key={each} type="button" aria-pressed={each === name} onClick={() => setChosen(each)}>
              {each}
            </button>
          ))}
        </div>
      )}
      {value && name && <Watch key={name} name={name} type={value.schema[name]!} />}
    </div>
  )
}

interface Notification {
  at: number
  isLive: boolean
  text: string
  id: string
  /** The name of its stream, which its topic begins with. */
  base: string
  summary: string
}

type Phase = "idle" | "connecting" | "replay" | "live" | "ended"

function useWatch(): {
  rows: Notification[]
  phase: Phase
  error: ApiError | null
  start(body: unknown): void
  stop(): void
} {
  const [, setVersion] = useState(0)
  const [phase, setPhase] = useState<Phase>("idle")
  const [error, setError] = useState<ApiError | null>(null)
  const rows = useRef<Notification[]>([])
  const controller = useRef<AbortController | null>(null)
  const stop = (): void => {
    controller.current?.abort()
    controller.current = null
    setPhase((before) => (before === "idle" ? before : "ended"))
  }
  useEffect(() => () => controller.current?.abort(), [])
  const start = async (body: unknown): Promise<void> => {
    controller.current?.abort()
    const own = (controller.current = new AbortController())
    rows.current = []
    setError(null)
    setPhase("connecting")
    let frame = 0
    try {
      const response = await send("/api/v1/watch", {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
        signal: own.signal,
      })
      for await (const each of events(response)) {
        const data = JSON.parse(each.data)
        if (data.type === "connection_established" || data.type === "replay_completed") setPhase("live")
        else if (data.type === "replay_started") setPhase("replay")
        else if (each.event === "connection-closing") break
        else if (data.data?.identifier) {
          const identifier = data.data.identifier as Record<string, unknown>
          const summary = Object.entries(identifier)
            .map(([key, value]) => `${key}=${typeof value === "string" ? value : JSON.stringify(value)}`)
            .join("  ")
          rows.current.push({ at: Date.now(), isLive: each.event === "live-notification", text: each.data, id: data.id, base: String(data.subject ?? "").split(".")[0]!, summary })
          frame ||= requestAnimationFrame(() => {
            frame = 0
            setVersion((before) => before + 1)
          })
        }
      }
      setPhase("ended")
    } catch (failure) {
      if (own.signal.aborted) return
      setPhase("ended")
      setError(failure instanceof ApiError ? failure : new ApiError(0, "UNREACHABLE", "The connection broke."))
    }
  }
  return { rows: rows.current, phase, error, start: (body) => void start(body), stop }
}

const PHASES: Record<Phase, string> = {
  idle: "Not watching",
  connecting: "Connecting …",
  replay: "Replaying …",
  live: "Live",
  ended: "Ended",
}

function Watch({ name, type }: { name: string; type: EventType }): JSX.Element {
  const [filter, setFilter] = useState<Record<string, string>>({})
  const [history, setHistory] = useState(true)
  const { rows, phase, error, start, stop } = useWatch()
  const [selected, setSelected] = useState<number | null>(null)
  const [pinned, setPinned] = useState(true)
  const fields = Object.entries(type.identifier)
  const submit = (event: Event): void => {
    event.preventDefault()
    const identifier = Object.fromEntries(Object.entries(filter).filter(([, value]) => value !== "").map(([key, value]) => [key, parse(value)]))
    setSelected(null)
    start({ event_type: name, identifier, ...(history ? { from_id: "0" } : {}) })
  }
  const isOn = phase === "connecting" || phase === "replay" || phase === "live"
  const log = rows[0]?.base
  const row = selected === null ? null : rows[selected]
  return (
    <div class="watch">
      <form class="card watch-form" onSubmit={submit}>
        <h2>{name}</h2>
        <div class="fields">
          {fields.map(([field, schema]) => (
            <FilterField key={field} name={field} schema={schema} value={filter[field] ?? ""} onValue={(value) => setFilter({ ...filter, [field]: value })} />
          ))}
        </div>
        <label class="check">
          <input type="checkbox" checked={history} onChange={(event) => setHistory(event.currentTarget.checked)} />
          Earlier ones first
        </label>
        <footer>
          {log && <a href={streamLink(`aviso/${log}`)}>Its log</a>}
          {isOn ? <Button icon="pause" label="Stop" onClick={stop} /> : <button class="button primary">Watch</button>}
        </footer>
      </form>
      <section class="watch-list" aria-label="Notifications">
        <div class="toolbar">
          <span class={`state ${phase}`} role="status">
            <i aria-hidden="true" />
            {PHASES[phase]}
          </span>
          <span class="faint" data-notifications={rows.length}>
            {plural(rows.length, "notification")}
          </span>
        </div>
        {error && <Problem error={error} />}
        <div class="tail-body">
          <div class="tail-list">
            {!rows.length && (
              <Empty title={isOn ? "None so far" : "Nothing watched yet"}>
                <p>{isOn ? "New ones appear at once." : "Fields that are left empty match everything."}</p>
              </Empty>
            )}
            <VirtualList
              label={`Notifications of ${name}`}
              count={rows.length}
              dropped={0}
              pinned={pinned}
              onPinned={setPinned}
              selected={selected}
              onSelect={setSelected}
              row={(index) => {
                const each = rows[index]!
                return (
                  <>
                    <span class="row-at">{each.id.split("@")[1] ?? count(index)}</span>
                    {each.isLive && <Badge kind="json">live</Badge>}
                    <span class="row-text">{each.summary}</span>
                    <time class="row-time">{clock(each.at)}</time>
                  </>
                )
              }}
            />
          </div>
          {row && (
            <aside class="message" aria-label="The selected notification">
              <header>
                <h2>{row.id}</h2>
                <Button icon="close" label="Close the notification" hideLabel kind="quiet" onClick={() => setSelected(null)} />
              </header>
              <div class="message-body" tabIndex={0} role="region" aria-label="Its content">
                <JsonView text={row.text} />
              </div>
            </aside>
          )}
        </div>
      </section>
    </div>
  )
}

function FilterField({ name, schema, value, onValue }: { name: string; schema: FieldSchema; value: string; onValue: (value: string) => void }): JSX.Element {
  const kind = schema.type.replace("Handler", "").toLowerCase()
  const hint = [schema.description ?? "", schema.range ? `${schema.range[0]} to ${schema.range[1]}` : ""].filter(Boolean).join(", ")
  return (
    <Field label={`${name}${schema.required ? " *" : ""}`} hint={hint || kind}>
      {(id) =>
        schema.values ? (
          <select id={id} value={value} onChange={(event) => onValue(event.currentTarget.value)}>
            <option value="">any</option>
            {schema.values.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        ) : (
          <input id={id} required={schema.required === true} spellcheck={false} placeholder="any" value={value} onInput={(event) => onValue(event.currentTarget.value)} />
        )
      }
    </Field>
  )
}

/** A constraint such as {"gte": 4} is JSON; all else is text. */
function parse(value: string): unknown {
  if (!/^[[{]/.test(value.trim())) return value
  try {
    return JSON.parse(value)
  } catch {
    return value
  }
}
