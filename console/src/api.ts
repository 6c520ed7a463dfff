// The server's documented endpoints. Credentials are sent in headers: never in a URL.

export type Credential = { kind: "bearer" | "signed"; value: string }

export interface StreamSummary {
  path: string
  content_type: string
  next_offset: string
  closed: boolean
  created_at: string
  ttl: number | null
  expires_at: string | null
  length: number
  bytes: number
  last_written_at: string
}

export interface StreamDetails extends StreamSummary {
  earliest_offset: string
  last_access_at: string
  last_seq: string | null
  forked_from: { path: string; offset: string } | null
  forks: number
  fork_paths: string[]
  producers: { id: string; epoch: number; seq: number }[]
  hot: { first_slot: number; slots: number; bytes: number }
  cold: { bytes: number; segments: { first_slot: number; stop_slot: number; bytes: number; committed_at: string }[] }
}

export interface Access {
  kind: string
  subject: string | null
  scopes: string[]
  streams: string[]
  expires_at: string | null
  stream: string | null
  operations: Record<string, boolean>
}

export interface CableConnection {
  id: string
  identity: string
  connected_at: string
  streams: string[]
}

export interface FieldSchema {
  type: string
  required?: boolean
  description?: string
  values?: string[]
  range?: [number, number] | null
}

export interface EventType {
  identifier: Record<string, FieldSchema>
  payload: { required: boolean } | null
}

export interface Subscription {
  id: string
  type: string
  pattern?: string
  description?: string
  status: string
  lease_ttl_ms: number
  created_at: string
  webhook?: { url: string; signing?: { kid: string } }
  wake_stream?: string
  streams?: { path: string; link_type: string; acked_offset: string }[]
  [more: string]: unknown
}

/** An answer that is an error, or a server that did not answer. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly requestId = "",
    readonly retryAfter = 0,
  ) {
    super(message)
  }

  get isTemporary(): boolean {
    return this.status === 0 || this.status === 408 || this.status === 429 || this.status >= 500
  }

  get isRefusal(): boolean {
    return this.status === 401 || this.status === 403
  }
}

const KEPT_AS = "tailrace.credential"
let credential: Credential | null = JSON.parse(sessionStorage.getItem(KEPT_AS) ?? "null")
const listeners = new Set<() => void>()

export const currentCredential = (): Credential | null => credential

/** Keeps a credential until the tab is closed; null forgets it. */
export function useCredentialFromNowOn(next: Credential | null): void {
  credential = next
  if (next) sessionStorage.setItem(KEPT_AS, JSON.stringify(next))
  else sessionStorage.removeItem(KEPT_AS)
  for (const listener of listeners) listener()
}

export function onCredentialChange(listener: () => void): () => void {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

export function credentialOf(text: string): Credential {
  const value = text.trim().replace(/^bearer\s+/i, "")
  return { kind: /^[A-Za-z0-9+/]+={0,2}--[0-9a-f]{64}$/.test(value) ? "signed" : "bearer", value }
}

function credentialHeaders(given: Credential | null): Record<string, string> {
  if (!given) return {}
  return given.kind === "bearer" ? { authorization: `Bearer ${given.value}` } : { "x-signed": given.value }
}

/** Sends a request; resolves with a response that is no error. */
export async function send(url: string, init: RequestInit = {}, given = credential): Promise<Response> {
  let response: Response
  try {
    response = await fetch(url, {
      cache: "no-store",
      ...init,
      headers: { ...credentialHeaders(given), ...(init.headers as Record<string, string>) },
    })
  } catch (error) {
    if ((error as Error).name === "AbortError") throw error
    throw new ApiError(0, "UNREACHABLE", "The server does not answer.")
  }
  if (response.ok) return response
  throw await errorOf(response)
}

async function errorOf(response: Response): Promise<ApiError> {
  const text = await response.text().catch(() => "")
  let code = String(response.status)
  let message = text.slice(0, 300) || response.statusText || "no message"
  try {
    const body = JSON.parse(text)
    // Aviso has errors of its own form.
    code = body.error?.code ?? body.code ?? code
    message = body.error?.message ?? body.message ?? message
  } catch {
    // Not from the server itself, or a HEAD.
  }
  const id = response.headers.get("x-request-id") ?? ""
  return new ApiError(response.status, code, message, id, Number(response.headers.get("retry-after")) || 0)
}

async function json<T>(url: string, init: RequestInit = {}, given = credential): Promise<T> {
  return (await send(url, init, given)).json() as Promise<T>
}

const query = (values: Record<string, string | number>): string => {
  const parameters = new URLSearchParams()
  for (const [name, value] of Object.entries(values)) if (value !== "") parameters.set(name, String(value))
  return parameters.size ? `?${parameters}` : ""
}

/** A path as it goes into a URL: from the listing it is encoded, from a form it may not be. */
export const encodePath = (path: string): string =>
  path
    .trim()
    .replace(/^\/+/, "")
    .split("/")
    .map((segment) => encodeURIComponent(segment.replace(/%[0-9A-Fa-f]{2}/g, (escape) => `\0${escape.slice(1)}`)).replace(/%00/g, "%"))
    .join("/")

export const streamUrl = (path: string): string => `/v1/stream/${path}`

export const listStreams = (prefix: string, after = "", limit = 100) =>
  json<{ streams: StreamSummary[]; next: string | null }>(`/v1/streams${query({ prefix, after, limit })}`)

export const streamDetails = (path: string) => json<StreamDetails>(`/v1/details${query({ stream: path })}`)

export interface StreamHead {
  contentType: string
  nextOffset: string
  earliestOffset: string
  closed: boolean
  lastWrittenAt: string
  ttl: string
  expiresAt: string
}

export async function streamHead(path: string): Promise<StreamHead> {
  const response = await send(streamUrl(path), { method: "HEAD" }).catch(async (error: unknown) => {
    // The answer to a HEAD has no body that would say why.
    if (error instanceof ApiError && error.status) await send(`${streamUrl(path)}?offset=now`)
    throw error
  })
  const header = (name: string): string => response.headers.get(name) ?? ""
  return {
    contentType: header("content-type"),
    nextOffset: header("stream-next-offset"),
    earliestOffset: header("stream-earliest-offset"),
    closed: header("stream-closed") === "true",
    lastWrittenAt: header("stream-last-written-at"),
    ttl: header("stream-ttl"),
    expiresAt: header("stream-expires-at"),
  }
}

export const createStream = (path: string, headers: Record<string, string>, body: string | null) =>
  send(streamUrl(path), { method: "PUT", headers, body })

export const append = (path: string, contentType: string, body: BodyInit) =>
  send(streamUrl(path), { method: "POST", headers: { "content-type": contentType }, body })

export const closeStream = (path: string) =>
  send(streamUrl(path), { method: "POST", headers: { "stream-closed": "true" } })

export const deleteStream = (path: string) => send(streamUrl(path), { method: "DELETE" })

export const access = (stream: string, given = credential) => json<Access>(`/v1/access${query({ stream })}`, {}, given)

export const cableConnections = () =>
  json<{ connections: CableConnection[]; complete: boolean }>("/v1/cable/connections")

export const cablePresence = (stream: string) =>
  json<{ total: number; members: { id: string; info: unknown }[] }>(`/v1/cable/presence${query({ stream })}`)

export const broadcast = (stream: string, data: string) =>
  send("/_broadcast", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ stream, data }),
  })

export const eventTypes = () =>
  json<{ event_types: string[]; schema: Record<string, EventType> }>("/api/v1/schema")

export const listSubscriptions = (after = "") =>
  json<{ subscriptions: Subscription[]; next: string | null }>(
    `/v1/stream/__ds/subscriptions${query({ after, limit: 100 })}`,
  )

export const getSubscription = (id: string) =>
  json<Subscription>(`/v1/stream/__ds/subscriptions/${encodeURIComponent(id)}`)

export const health = () => json<{ version: string }>("/health?verbose")
