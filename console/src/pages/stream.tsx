import type { JSX } from "preact"
import { useCallback, useState } from "preact/hooks"
import { closeStream, createStream, deleteStream, encodePath, streamDetails, streamHead, type StreamDetails, type StreamHead } from "../api"
import { ago, bytes, count, moment, plural, seconds } from "../format"
import { useAction, useLoaded, useTick } from "../hooks"
import { decode } from "../app"
import { lengthAt, modeOf } from "../messages"
import { Badge, Button, Dialog, Field, Loading, Problem } from "../parts"
import { go, streamLink } from "../router"
import { Tail } from "./tail"

type Asking = "close" | "delete" | "fork" | null

export function StreamPage({ path, query }: { path: string; query: URLSearchParams }): JSX.Element {
  const head = useLoaded(() => streamHead(path), [path], 10)
  const details = useLoaded(() => streamDetails(path), [path], 10)
  const [asking, setAsking] = useState<Asking>(null)
  const [tab, setTab] = useState<"messages" | "details">(query.get("tab") === "details" ? "details" : "messages")
  const ended = useCallback(() => {
    head.reload()
    details.reload()
  }, [head.reload, details.reload])
  if (head.error && (!head.value || head.error.status === 404 || head.error.status === 410)) {
    return (
      <div class="page">
        <Title path={path} />
        <Problem error={head.error} />
        {head.error.status === 404 && <p>There is no such stream, or no longer.</p>}
      </div>
    )
  }
  if (!head.value) return <Loading />
  const { contentType, closed } = head.value
  const mode = modeOf(contentType)
  const choose = (next: "messages" | "details"): void => setTab(next)
  return (
    <div class="page stream-page">
      <header class="head stream-head">
        <Title path={path} />
        <div class="badges">
          <Badge kind={mode}>{contentType}</Badge>
          {closed && <Badge kind="closed">closed</Badge>}
          {head.value.ttl && <Badge>TTL {seconds(Number(head.value.ttl))}</Badge>}
        </div>
        <div class="actions">
          <Button icon="fork" label="Fork" onClick={() => setAsking("fork")} />
          <Button icon="lock" label="Close" disabled={closed} onClick={() => setAsking("close")} />
          <Button icon="trash" label="Delete" kind="danger" onClick={() => setAsking("delete")} />
        </div>
      </header>
      <div class="tabs" role="tablist" aria-label="Views of the stream">
        <button type="button" role="tab" id="tab-messages" aria-selected={tab === "messages"} aria-controls="panel" onClick={() => choose("messages")}>
          Messages
        </button>
        <button type="button" role="tab" id="tab-details" aria-selected={tab === "details"} aria-controls="panel" onClick={() => choose("details")}>
          Details
        </button>
        <span class="faint tabs-note">
          {mode === "json" && `${plural(lengthAt(head.value.nextOffset), "message")} · `}
          {details.value && bytes(details.value.bytes)}
        </span>
      </div>
      <div class="panel" id="panel" role="tabpanel" aria-labelledby={`tab-${tab}`}>
        {tab === "messages" ? (
          <Tail key={path} path={path} head={head.value} query={query} onEnded={ended} />
        ) : (
          <Details path={path} head={head.value} details={details.value} problem={details.error && <Problem error={details.error} />} />
        )}
      </div>
      {asking === "fork" && <ForkDialog path={path} head={head.value} onClose={() => setAsking(null)} />}
      {asking === "close" && <CloseDialog path={path} onClose={() => setAsking(null)} onDone={ended} />}
      {asking === "delete" && <DeleteDialog path={path} onClose={() => setAsking(null)} />}
    </div>
  )
}

function Title({ path }: { path: string }): JSX.Element {
  const parts = path.split("/")
  return (
    <div class="title">
      <nav aria-label="Prefixes" class="crumbs">
        <a href="#/streams">Streams</a>
        {parts.slice(0, -1).map((part, index) => (
          <a key={index} href={`#/streams?${new URLSearchParams({ prefix: `${parts.slice(0, index + 1).join("/")}/` })}`}>
            {decode(part)}
          </a>
        ))}
      </nav>
      <h1>{decode(parts.at(-1)!)}</h1>
    </div>
  )
}

interface DetailsProps {
  path: string
  head: StreamHead
  details: StreamDetails | null
  problem: JSX.Element | null
}

function Details({ path, head, details, problem }: DetailsProps): JSX.Element {
  useTick(1000)
  return (
    <div class="details">
      <section class="card">
        <h2>Configuration</h2>
        <dl>
          <Item name="Path" value={<code>{path}</code>} />
          <Item name="Content type" value={head.contentType} />
          <Item name="State" value={head.closed ? "closed: takes no more appends" : "open"} />
          <Item name="TTL" value={head.ttl ? `${seconds(Number(head.ttl))} without use` : "none"} />
          <Item name="Expires" value={head.expiresAt ? moment(head.expiresAt) : "at no fixed time"} />
          <Item name="Last write" value={head.lastWrittenAt && `${moment(head.lastWrittenAt)} (${ago(head.lastWrittenAt)})`} />
          {details && <Item name="Created" value={`${moment(details.created_at)} (${ago(details.created_at)})`} />}
          {details && <Item name="Last access" value={`${moment(details.last_access_at)}`} />}
          <Item name="First offset" value={<code>{head.earliestOffset}</code>} />
          <Item name="Next offset" value={<code>{head.nextOffset}</code>} />
          {details?.last_seq && <Item name="Stream-Seq" value={<code>{details.last_seq}</code>} />}
        </dl>
      </section>
      {problem}
      {details && <Parts details={details} />}
      {details && <Producers details={details} />}
      {details && <Forks details={details} />}
    </div>
  )
}

const Item = ({ name, value }: { name: string; value: JSX.Element | string }): JSX.Element => (
  <div>
    <dt>{name}</dt>
    <dd>{value}</dd>
  </div>
)

function Parts({ details }: { details: StreamDetails }): JSX.Element {
  const { hot, cold } = details
  const total = Math.max(1, hot.bytes + cold.bytes)
  return (
    <section class="card">
      <h2>Parts</h2>
      <svg class="parts" viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label={`cold ${bytes(cold.bytes)}, hot ${bytes(hot.bytes)}`}>
        <rect class="part-cold" x="0" y="0" height="4" width={(cold.bytes / total) * 100} />
        <rect class="part-hot" x={(cold.bytes / total) * 100} y="0" height="4" width={(hot.bytes / total) * 100} />
      </svg>
      <dl>
        <Item name="Hot, in the table" value={`${bytes(hot.bytes)} in ${plural(hot.slots, "slot")}, from slot ${count(hot.first_slot)}`} />
        <Item name="Cold, in segments" value={cold.bytes ? bytes(cold.bytes) : "nothing yet"} />
      </dl>
      {cold.segments.length > 0 && (
        <table>
          <thead>
            <tr>
              <th scope="col">Slots</th>
              <th scope="col" class="number">
                Size
              </th>
              <th scope="col" class="number">
                Written
              </th>
            </tr>
          </thead>
          <tbody>
            {cold.segments.slice(0, 20).map((segment) => (
              <tr key={segment.first_slot}>
                <td>
                  {count(segment.first_slot)} – {count(segment.stop_slot - 1)}
                </td>
                <td class="number">{bytes(segment.bytes)}</td>
                <td class="number">{ago(segment.committed_at)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  )
}

function Producers({ details }: { details: StreamDetails }): JSX.Element {
  return (
    <section class="card">
      <h2>Producers</h2>
      {details.producers.length ? (
        <table>
          <thead>
            <tr>
              <th scope="col">Producer-Id</th>
              <th scope="col" class="number">
                Epoch
              </th>
              <th scope="col" class="number">
                Last sequence
              </th>
            </tr>
          </thead>
          <tbody>
            {details.producers.map((producer) => (
              <tr key={producer.id}>
                <td>
                  <code>{producer.id}</code>
                </td>
                <td class="number">{count(producer.epoch)}</td>
                <td class="number">{count(producer.seq)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      ) : (
        <p class="faint">None has written to this stream.</p>
      )}
    </section>
  )
}

function Forks({ details }: { details: StreamDetails }): JSX.Element {
  const source = details.forked_from
  return (
    <section class="card">
      <h2>Forks</h2>
      {source && (
        <p>
          Forked from <a href={streamLink(source.path)}>{source.path}</a> at <code>{source.offset}</code>
        </p>
      )}
      <p class={details.forks ? "" : "faint"}>{details.forks ? plural(details.forks, "fork") : "No stream was forked from this one."}</p>
      {details.fork_paths.length > 0 && (
        <ul>
          {details.fork_paths.map((path) => (
            <li key={path}>
              <a href={streamLink(path)}>{path}</a>
            </li>
          ))}
        </ul>
      )}
    </section>
  )
}

function ForkDialog({ path, head, onClose }: { path: string; head: StreamHead; onClose: () => void }): JSX.Element {
  const [target, setTarget] = useState(`${path}-fork`)
  const [offset, setOffset] = useState("")
  const { busy, error, run } = useAction()
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault()
    const encoded = encodePath(target)
    const headers: Record<string, string> = { "content-type": head.contentType, "stream-forked-from": `/v1/stream/${path}` }
    if (offset) headers["stream-fork-offset"] = offset.trim()
    if (await run(() => createStream(encoded, headers, null))) go(streamLink(encoded))
  }
  return (
    <Dialog title="Fork the stream" onClose={onClose}>
      <form onSubmit={submit}>
        <Field label="Path of the fork">
          {(id) => <input id={id} required value={target} spellcheck={false} onInput={(event) => setTarget(event.currentTarget.value)} />}
        </Field>
        <Field label="At the offset" hint="If empty, at the end">
          {(id) => <input id={id} value={offset} placeholder={head.nextOffset} spellcheck={false} onInput={(event) => setOffset(event.currentTarget.value)} />}
        </Field>
        {error && <Problem error={error} />}
        <footer>
          <button class="button primary" disabled={busy}>
            Fork
          </button>
        </footer>
      </form>
    </Dialog>
  )
}

function CloseDialog({ path, onClose, onDone }: { path: string; onClose: () => void; onDone: () => void }): JSX.Element {
  const { busy, error, run } = useAction()
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault()
    if (await run(() => closeStream(path))) {
      onDone()
      onClose()
    }
  }
  return (
    <Dialog title="Close the stream" onClose={onClose}>
      <form onSubmit={submit}>
        <p>No append is accepted after this, and readers learn that the stream has ended. It cannot be undone.</p>
        {error && <Problem error={error} />}
        <footer>
          <button class="button primary" disabled={busy}>
            Close for good
          </button>
        </footer>
      </form>
    </Dialog>
  )
}

function DeleteDialog({ path, onClose }: { path: string; onClose: () => void }): JSX.Element {
  const [typed, setTyped] = useState("")
  const { busy, error, run } = useAction()
  const name = decode(path)
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault()
    if (await run(() => deleteStream(path))) go("#/streams")
  }
  return (
    <Dialog title="Delete the stream" onClose={onClose}>
      <form onSubmit={submit}>
        <p>All of its data is removed, and cannot be brought back.</p>
        <Field label={`Type ${name} to confirm`}>
          {(id) => <input id={id} value={typed} spellcheck={false} autocomplete="off" onInput={(event) => setTyped(event.currentTarget.value)} />}
        </Field>
        {error && <Problem error={error} />}
        <footer>
          <button class="button danger filled" disabled={busy || typed !== name}>
            Delete
          </button>
        </footer>
      </form>
    </Dialog>
  )
}
