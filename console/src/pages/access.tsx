import type { JSX } from "preact"
import { useState } from "preact/hooks"
import { access, credentialOf, currentCredential, encodePath, useCredentialFromNowOn, type Access, type Credential } from "../api"
import { ago, moment } from "../format"
import { useAction, useLoaded } from "../hooks"
import { Badge, Field, Loading, Problem } from "../parts"
import { streamLink } from "../router"

const MEANINGS: Record<string, string> = {
  create: "create the stream",
  append: "append to it",
  close: "close it",
  delete: "delete it",
  read: "read it",
  head: "see its metadata",
  list: "list what is below",
  broadcast: "broadcast to it",
  api: "use the REST API",
  admin: "see and do everything below",
}

export function AccessPage(): JSX.Element {
  const [stream, setStream] = useState("")
  const [asked, setAsked] = useState("")
  const used = currentCredential()
  const { value, error } = useLoaded(() => access(encodePath(asked)), [asked])
  const submit = (event: Event): void => {
    event.preventDefault()
    setAsked(stream)
  }
  return (
    <div class="page">
      <header class="head">
        <h1>Access</h1>
        <p class="lead">What this page may do. A credential stays in this tab, is sent in headers only, and is forgotten when the tab is closed.</p>
      </header>
      <div class="columns">
        <CredentialCard used={used} />
        <section class="card wide">
          <h2>What it permits</h2>
          <form class="inline" onSubmit={submit}>
            <Field label="For the stream" hint="If empty: for all streams">
              {(id) => <input id={id} spellcheck={false} placeholder="chat/room-1" value={stream} onInput={(event) => setStream(event.currentTarget.value)} />}
            </Field>
            <button class="button">Check</button>
          </form>
          {error && <Problem error={error} />}
          {!value && !error && <Loading />}
          {value && <Permissions access={value} />}
        </section>
      </div>
    </div>
  )
}

function CredentialCard({ used }: { used: Credential | null }): JSX.Element {
  const [text, setText] = useState("")
  const { busy, error, run } = useAction()
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault()
    const given = credentialOf(text)
    if (await run(() => access("", given))) useCredentialFromNowOn(given)
  }
  return (
    <section class="card">
      <h2>Credential</h2>
      {used ? (
        <>
          <p>
            A {used.kind === "bearer" ? "bearer token" : "signed name"} is in use: <code class="faint">{used.value.slice(0, 12)}…</code>
          </p>
          <button type="button" class="button" onClick={() => useCredentialFromNowOn(null)}>
            Forget it
          </button>
        </>
      ) : (
        <form onSubmit={submit}>
          <Field label="Bearer token or signed name" hint="From tailrace token, or tailrace sign">
            {(id) => <textarea id={id} required rows={4} spellcheck={false} autocomplete="off" value={text} onInput={(event) => setText(event.currentTarget.value)} />}
          </Field>
          {error && <Problem error={error} />}
          <footer>
            <button class="button primary" disabled={busy}>
              Use it
            </button>
          </footer>
        </form>
      )}
    </section>
  )
}

function Permissions({ access: shown }: { access: Access }): JSX.Element {
  return (
    <>
      <dl>
        <div>
          <dt>Credential</dt>
          <dd>{shown.kind === "open" ? "not needed: this server is open" : shown.kind}</dd>
        </div>
        {shown.subject && (
          <div>
            <dt>Client</dt>
            <dd>{shown.subject}</dd>
          </div>
        )}
        {shown.scopes.length > 0 && (
          <div>
            <dt>Scopes</dt>
            <dd>
              {shown.scopes.map((scope) => (
                <Badge key={scope}>{scope}</Badge>
              ))}
            </dd>
          </div>
        )}
        {shown.streams.length > 0 && (
          <div>
            <dt>Streams</dt>
            <dd>
              {shown.streams.map((pattern) => (
                <code key={pattern}>{pattern}</code>
              ))}
            </dd>
          </div>
        )}
        {shown.expires_at && (
          <div>
            <dt>Expires</dt>
            <dd>
              {moment(shown.expires_at)} ({ago(shown.expires_at)})
            </dd>
          </div>
        )}
        {shown.stream && (
          <div>
            <dt>Stream</dt>
            <dd>
              <a href={streamLink(encodePath(shown.stream))}>{shown.stream}</a>
            </dd>
          </div>
        )}
      </dl>
      <ul class="permissions">
        {Object.entries(shown.operations).map(([operation, allowed]) => (
          <li key={operation} class={allowed ? "yes" : "no"}>
            <span class="mark" aria-hidden="true">
              {allowed ? "✓" : "–"}
            </span>
            <strong>{operation}</strong>
            <span>
              {allowed ? "may " : "may not "}
              {MEANINGS[operation] ?? ""}
            </span>
          </li>
        ))}
      </ul>
    </>
  )
}
