// The stock JavaScript client at the work of bench/client.py. Usage: node client.mjs NODE_MODULES URL SIZES
import { randomUUID } from "node:crypto"
import { createRequire } from "node:module"
import { resolve } from "node:path"
import { pathToFileURL } from "node:url"

const [nodeModules, url, sizes] = process.argv.slice(2)
const require = createRequire(pathToFileURL(resolve(nodeModules, "..", "package.json")))
const { DurableStream, IdempotentProducer, stream } = require("@durable-streams/client")
const { appends, messages } = JSON.parse(sizes)

const contentType = "application/json"
const create = () =>
  DurableStream.create({ url: `${url}/v1/stream/bench/${randomUUID()}`, contentType, batching: false })
const message = (n) => JSON.stringify({ n, text: "x".repeat(76) })

async function timed(count, work) {
  const began = performance.now()
  await work()
  return count / ((performance.now() - began) / 1000)
}

const producerOptions = { maxBatchBytes: 262144, maxInFlight: 4, lingerMs: 5 }
async function produce(handle) {
  const errors = []
  const producer = new IdempotentProducer(handle, "bench", {
    ...producerOptions,
    onError: (error) => errors.push(error),
  })
  for (let n = 0; n < messages; n++) producer.append(message(n))
  await producer.flush()
  await producer.detach()
  if (errors.length) throw errors[0]
}

const single = await create()
await single.append(message(0))
const append = await timed(appends, async () => {
  for (let n = 0; n < appends; n++) await single.append(message(n))
})

const long = await create()
const producer = await timed(messages, () => produce(long))
const check = (items) => {
  if (items.length !== messages || items.some((item, n) => item.n !== n)) throw new Error("wrong items")
}
const read = await timed(messages, async () => {
  const session = await stream({ url: long.url, offset: "-1", live: true })
  check(await session.json())
})

const live = await create()
const session = await stream({ url: live.url, offset: "now", live: "sse" })
const received = []
const done = new Promise((finish) => {
  session.subscribeJson(({ items }) => {
    received.push(...items)
    if (received.length >= messages) finish()
  })
})
const tail = await timed(messages, async () => {
  await produce(live)
  await done
})
session.cancel()
check(received)
console.log(JSON.stringify({ append, producer, read, tail }))
process.exit(0)
