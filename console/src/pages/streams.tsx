import type { JSX } from "preact"
import { useEffect, useState } from "preact/hooks"
import { createStream, encodePath, listStreams, type StreamSummary } from "../api"
import { ago, bytes, count, moment, seconds } from "../format"
import { useAction, useLoaded, useTick } from "../hooks"
import { Icon } from "../icons"
import { modeOf } from "../messages"
import { Badge, Button, Dialog, Empty, Field, Loading, Problem } from "../parts"
import { go, streamLink } from "../router"

const PAGE = 100

export function StreamsPage({ query }: { query: URLSearchParams }): JSX.Element {
  const prefix = query.get("prefix") ?? ""
  const [typed, setTyped] = useState(prefix)
  const [pages, setPages] = useState(1)
  const [creating, setCreating] = useState(false)
  useTick(1000)
  useEffect(() => {
    const timer = setTimeout(() => {
      if (typed !== prefix) history.replaceState(null, "", typed ? `#/streams?${new URLSearchParams({ prefix: typed })}` : "#/streams")
      if (typed !== prefix) dispatchEvent(new HashChangeEvent("hashchange"))
    }, 200)
    return () => clearTimeout(timer)
  }, [typed])
  const { value, error, reload } = useLoaded(() => listPages(prefix, pages), [prefix, pages], 5)
  return (
    <div class="page">
      <header class="head">
        <h1>Streams</h1>
        <div class="search">
          <Icon name="search" />
          <input
            data-search
            type="search"
            placeholder="Paths that begin with …"
            aria-label="Search streams by the beginning of their path"
            value={typed}
            onInput={(event) => {
              setTyped(event.currentTarget.value)
              setPages(1)
            }}
          />
          <kbd aria-hidden="true">/</kbd>
        </div>
        <Button icon="plus" label="New stream" kind="primary" onClick={() => setCreating(true)} />
      </header>
      {error && <Problem error={error} />}
      {!value && !error && <Loading />}
      {value && (value.streams.length ? <Table streams={value.streams} /> : <None prefix={prefix} />)}
      {value?.next && (
        <p class="more">
          <Button label="More streams" onClick={() => setPages(pages + 1)} />
        </p>
      )}
      {creating && (
        <CreateDialog
          prefix={prefix}
          onClose={() => {
            setCreating(false)
            reload()
          }}
        />
      )}
    </div>
  )
}

async function listPages(prefix: string, pages: number): Promise<{ streams: StreamSummary[]; next: string | null }> {
  const streams: StreamSummary[] = []
  let next: string | null = ""
  for (let page = 0; page < pages && next !== null; page += 1) {
    const answer = await listStreams(prefix, next, PAGE)
    streams.push(...answer.streams)
    next = answer.next
  }
  return { streams, next }
}

const None = ({ prefix }: { prefix: string }): JSX.Element =>
  prefix ? (
    <Empty title="No stream begins with that">
      <p>
        Nothing is at <code>{prefix}…</code>
      </p>
    </Empty>
  ) : (
    <Empty title="No streams yet">
      <p>A stream is an append-only log that lives at a URL. Create one here, or by a request:</p>
      <pre>{`curl -X PUT -H 'Content-Type: application/json' \\\n  ${location.origin}/v1/stream/hello`}</pre>
    </Empty>
  )

function Table({ streams }: { streams: StreamSummary[] }): JSX.Element {
  return (
    <table class="streams">
      <thead>
        <tr>
          <th scope="col">Path</th>
          <th scope="col">Type</th>
          <th scope="col" class="number">
            Messages
          </th>
          <th scope="col" class="number">
            Size
          </th>
          <th scope="col" class="number">
            Last write
          </th>
        </tr>
      </thead>
      <tbody>
        {streams.map((stream) => (
          <tr key={stream.path} onClick={() => go(streamLink(stream.path))}>
            <th scope="row">
              <a href={streamLink(stream.path)}>{stream.path}</a>
              {stream.closed && <Badge kind="closed">closed</Badge>}
              {stream.ttl !== null && <Badge>TTL {seconds(stream.ttl)}</Badge>}
              {stream.expires_at && <Badge>until {moment(stream.expires_at)}</Badge>}
            </th>
            <td>
              <Badge kind={modeOf(stream.content_type)}>{stream.content_type}</Badge>
            </td>
            <td class="number">{modeOf(stream.content_type) === "json" ? count(stream.length) : "–"}</td>
            <td class="number">{bytes(stream.bytes)}</td>
            <td class="number" title={moment(stream.last_written_at)}>
              {ago(stream.last_written_at)}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  )
}

const TYPES = ["application/json", "text/plain", "application/octet-stream"]

function CreateDialog({ prefix, onClose }: { prefix: string; onClose: () => void }): JSX.Element {
  const [path, setPath] = useState(prefix)
  const [type, setType] = useState(TYPES[0]!)
  const [ttl, setTtl] = useState("")
  const [expires, setExpires] = useState("")
  const [body, setBody] = useState("")
  const { busy, error, run } = useAction()
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault()
    const encoded = encodePath(path)
    const headers: Record<string, string> = { "content-type": type }
    if (ttl) headers["stream-ttl"] = ttl
    if (expires) headers["stream-expires-at"] = new Date(expires).toISOString()
    if (await run(() => createStream(encoded, headers, body || null))) go(streamLink(encoded))
  }
  return (
    <Dialog title="New stream" onClose={onClose}>
      <form onSubmit={submit}>
        <Field label="Path" hint="One or more segments, such as chat/room-1">
          {(id) => <input id={id} required value={path} spellcheck={false} autocomplete="off" onInput={(event) => setPath(event.currentTarget.value)} />}
        </Field>
        <Field label="Content type">
          {(id) => (
            <>
              <input id={id} required list={`${id}-types`} value={type} spellcheck={false} onInput={(event) => setType(event.currentTarget.value)} />
              <datalist id={`${id}-types`}>
                {TYPES.map((each) => (
                  <option key={each} value={each} />
                ))}
              </datalist>
            </>
          )}
        </Field>
        <div class="pair">
          <Field label="TTL in seconds" hint="without use">
            {(id) => <input id={id} type="number" min="1" value={ttl} disabled={!!expires} onInput={(event) => setTtl(event.currentTarget.value)} />}
          </Field>
          <Field label="Expires at" hint="your time">
            {(id) => <input id={id} type="datetime-local" value={expires} disabled={!!ttl} onInput={(event) => setExpires(event.currentTarget.value)} />}
          </Field>
        </div>
        <Field label="First content" hint="Optional">
          {(id) => <textarea id={id} rows={3} spellcheck={false} value={body} onInput={(event) => setBody(event.currentTarget.value)} />}
        </Field>
        {error && <Problem error={error} />}
        <footer>
          <button class="button primary" disabled={busy}>
            Create
          </button>
        </footer>
      </form>
    </Dialog>
  )
}
