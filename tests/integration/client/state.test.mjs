// The stock client of the State Protocol: collections that follow a stream of changes.
import { randomUUID } from "node:crypto"
import { DurableStream } from "@durable-streams/client"
import { createStateSchema, MaterializedState } from "@durable-streams/state"
import { createStreamDB } from "@durable-streams/state/db"
import { describe, expect, it, vi } from "vitest"

const JSON_TYPE = "application/json"
const WAIT = { timeout: 120_000, interval: 20 }

const anything = { "~standard": { version: 1, vendor: "tests", validate: (value) => ({ value }) } }
const state = createStateSchema({
  users: { schema: anything, type: "user", primaryKey: "id" },
  rooms: { schema: anything, type: "room", primaryKey: "id" },
})

async function create(changes = []) {
  const url = `${process.env.SERVER_URL}/v1/stream/state/${randomUUID()}`
  const handle = await DurableStream.create({ url, contentType: JSON_TYPE })
  for (const change of changes) await handle.append(JSON.stringify(change))
  return handle
}

const rows = (collection) =>
  Object.fromEntries(collection.toArray.map((row) => [row.id, row.name]))

describe.each(["sse", "long-poll"])("a database by %s", (live) => {
  it("loads what there is, and follows", { timeout: 150_000 }, async () => {
    const handle = await create([
      state.users.insert({ value: { id: "1", name: "Ada" } }),
      state.rooms.insert({ value: { id: "r", name: "attic" } }),
      state.users.update({ value: { id: "1", name: "Ada L." } }),
    ])
    const db = createStreamDB({ streamOptions: { url: handle.url, contentType: JSON_TYPE }, state, live })
    try {
      await db.preload()
      expect(rows(db.collections.users)).toEqual({ 1: "Ada L." })
      expect(rows(db.collections.rooms)).toEqual({ r: "attic" })
      const txid = randomUUID()
      const confirmed = db.utils.awaitTxId(txid, WAIT.timeout)
      const grace = { value: { id: "2", name: "Grace" }, headers: { txid } }
      await handle.append(JSON.stringify(state.users.insert(grace)))
      await confirmed
      expect(rows(db.collections.users)).toEqual({ 1: "Ada L.", 2: "Grace" })
      await handle.append(JSON.stringify(state.users.delete({ key: "1" })))
      await vi.waitFor(() => expect(rows(db.collections.users)).toEqual({ 2: "Grace" }), WAIT)
    } finally {
      db.close()
    }
  })
})

it("materializes state from reads, whole or from the end", async () => {
  const names = ["a", "b", "c", "d"]
  const handle = await create(names.map((name) => state.users.upsert({ value: { id: "1", name } })))
  for (const query of ["", "?last=1"]) {
    const materialized = new MaterializedState()
    for (const change of await (await fetch(handle.url + query)).json()) materialized.apply(change)
    expect(materialized.get("user", "1").name).toBe("d")
  }
})
