// What these tests share. SERVER_URL and SECRET are in the environment; RESTORES says whether sessions of
// clients that ask for history are restored.
import { createHmac, randomUUID } from "node:crypto"

const { SERVER_URL, SECRET } = process.env

export const URL_OF_CABLE = `${SERVER_URL.replace("http", "ws")}/cable`

const hmac = (text, encoding) => createHmac("sha256", SECRET).update(text).digest(encoding)

/** The name of a stream that no other test uses. */
export const fresh = (prefix = "chat") => `${prefix}/${randomUUID()}`

export function sign(name) {
  const encoded = Buffer.from(JSON.stringify(name)).toString("base64")
  return `${encoded}--${hmac(encoded, "hex")}`
}

function jwt(claims, lasting) {
  const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url")
  const exp = Math.floor(Date.now() / 1000) + lasting
  const signing = `${part({ alg: "HS256", typ: "JWT" })}.${part({ ...claims, exp })}`
  return `${signing}.${hmac(signing, "base64url")}`
}

/** An identification token that lasts for some seconds. */
export const token = (who, lasting = 3600) => jwt({ ext: JSON.stringify(who) }, lasting)

/** Delete a stream. */
export async function remove(stream) {
  const authorization = `Bearer ${jwt({ scope: "write", streams: [stream] }, 3600)}`
  const answer = await fetch(`${SERVER_URL}/v1/stream/${stream}`, { method: "DELETE", headers: { authorization } })
  if (answer.status !== 204) throw new Error(`${answer.status} ${await answer.text()}`)
}

async function post(asked) {
  const answer = await fetch(`${SERVER_URL}/_broadcast`, {
    method: "POST",
    headers: { Authorization: `Bearer ${hmac("broadcast-cable", "hex")}` },
    body: JSON.stringify(asked),
  })
  if (answer.status !== 201) throw new Error(`${answer.status} ${await answer.text()}`)
}

export const broadcast = (stream, data, meta) => post({ stream, data: JSON.stringify(data), meta })

export const disconnect = (who, reconnect) =>
  post({ command: "disconnect", payload: { identifier: JSON.stringify(who), reconnect } })

export const errorOf = (promise) => promise.then(() => undefined, (error) => error)

/** Options of AnyCable's clients that keep a busy machine from looking like a lost connection. */
export const PATIENT = { maxMissingPings: 1000, protocolOptions: { subscribeRetryInterval: 300_000 } }

/** Until something holds, asked again and again. */
export async function until(holds, what = holds.toString()) {
  for (const end = Date.now() + 120_000; Date.now() < end; ) {
    if (await holds()) return
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
  throw new Error(`it never came to this: ${what}`)
}
