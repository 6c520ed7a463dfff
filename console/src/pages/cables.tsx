import type { JSX } from "preact"
import { useState } from "preact/hooks"
import { broadcast, cableConnections, cablePresence, encodePath } from "../api"
import { ago, moment, plural } from "../format"
import { useAction, useLoaded, useTick } from "../hooks"
import { Field, Loading, Problem } from "../parts"
import { streamLink } from "../router"

export function CablesPage(): JSX.Element {
  const [stream, setStream] = useState("")
  const { value, error } = useLoaded(cableConnections, [], 2)
  useTick(1000)
  return (
    <div class="page">
      <header class="head">
        <h1>Cables</h1>
        <p class="lead">Clients of Action Cable: who is connected, who is present, and a broadcast to try.</p>
      </header>
      <div class="columns">
        <section class="card wide">
          <h2>
            Connections <span class="faint">{value && `${value.connections.length}${value.complete ? "" : "+"}`}</span>
          </h2>
          {error && <Problem error={error} />}
          {!value && !error && <Loading />}
          {value && !value.connections.length && <p class="faint">No client is connected.</p>}
          {value && value.connections.length > 0 && (
            <table>
              <thead>
                <tr>
                  <th scope="col">Identity</th>
                  <th scope="col">Streams</th>
                  <th scope="col" class="number">
                    Connected
                  </th>
                </tr>
              </thead>
              <tbody>
                {value.connections.map((each) => (
                  <tr key={each.id}>
                    <th scope="row">
                      <span class="identity">{each.identity}</span>
                      <small class="faint">{each.id}</small>
                    </th>
                    <td>
                      {each.streams.map((name) => (
                        <button key={name} type="button" class="chip" onClick={() => setStream(name)}>
                          {name}
                        </button>
                      ))}
                      {!each.streams.length && <span class="faint">none</span>}
                    </td>
                    <td class="number" title={moment(each.connected_at)}>
                      {ago(each.connected_at)}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          )}
        </section>
        <div class="stack">
          <Broadcast stream={stream} onStream={setStream} />
          <Presence stream={stream} />
        </div>
      </div>
    </div>
  )
}

function Broadcast({ stream, onStream }: { stream: string; onStream: (stream: string) => void }): JSX.Element {
  const [data, setData] = useState('{"text": "hello"}')
  const [sent, setSent] = useState(0)
  const { busy, error, run } = useAction()
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault()
    if (await run(() => broadcast(stream, data))) setSent(sent + 1)
  }
  return (
    <section class="card">
      <h2>Test broadcast</h2>
      <form onSubmit={submit}>
        <Field label="Stream" hint="Its name on cables, such as chat/42">
          {(id) => <input id={id} required spellcheck={false} value={stream} onInput={(event) => onStream(event.currentTarget.value)} />}
        </Field>
        <Field label="Data">
          {(id) => <textarea id={id} required rows={3} spellcheck={false} value={data} onInput={(event) => setData(event.currentTarget.value)} />}
        </Field>
        {error && <Problem error={error} />}
        <footer>
          <span class="faint" role="status">
            {sent > 0 && `${plural(sent, "broadcast")} sent`}
          </span>
          {stream && <a href={streamLink(encodePath(stream))}>Its log</a>}
          <button class="button primary" disabled={busy}>
            Send
          </button>
        </footer>
      </form>
    </section>
  )
}

function Presence({ stream }: { stream: string }): JSX.Element {
  const { value, error } = useLoaded(
    () => (stream ? cablePresence(stream) : Promise.resolve({ total: 0, members: [] })),
    [stream],
    2,
  )
  return (
    <section class="card">
      <h2>
        Presence <span class="faint">{stream && value ? value.total : ""}</span>
      </h2>
      {!stream && <p class="faint">Choose a stream above, or one of a connection.</p>}
      {error && <Problem error={error} />}
      {stream && value && !value.total && <p class="faint">Nobody is present in {stream}.</p>}
      {value && value.members.length > 0 && (
        <table>
          <thead>
            <tr>
              <th scope="col">Member</th>
              <th scope="col">Info</th>
            </tr>
          </thead>
          <tbody>
            {value.members.map((each) => (
              <tr key={each.id}>
                <th scope="row">{each.id}</th>
                <td>
                  <code>{JSON.stringify(each.info)}</code>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  )
}
