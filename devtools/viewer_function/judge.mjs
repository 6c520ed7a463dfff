// What the viewer-request function makes of many requests: `node judge.mjs cases.json`.
//
// Prints, for each case, the pass that it was given and what of its credentials is left, or null.
import { readFileSync } from "node:fs"

import { fromRequest, toEvent } from "../local_aws/viewer_event.mjs"
import { loadFunction } from "../local_aws/viewer_runtime.mjs"

const { code, now, stores, cases } = JSON.parse(readFileSync(process.argv[2], "utf8"))
const functions = stores.map((store) => loadFunction(code, { origins: ["http", "wait", "live"], store: () => store, now: () => now }))
const HOST = ["host", "streams.example.com"]

const judged = []
for (const { store, method, path, query, headers } of cases) {
  const event = toEvent({ method, path, query, headers: [HOST, ...headers] }, { requestId: "request-1" })
  const { request } = await functions[store].run(event)
  const sent = fromRequest(request, event, query)
  const named = Object.fromEntries(sent.headers)
  judged.push({
    path: sent.path,
    query: sent.query,
    headers: sent.headers,
    pass: named["x-tailrace-edge-token"] ?? null,
    alone: named["x-tailrace-reader"] === "request-1",
  })
}
process.stdout.write(JSON.stringify(judged))
