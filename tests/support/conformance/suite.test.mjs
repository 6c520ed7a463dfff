// The official suite, against any server:
// CONFORMANCE_URL=http://127.0.0.1:4437 npx vitest run --root tests/conformance
import { runConformanceTests } from "@durable-streams/server-conformance-tests"

runConformanceTests({ baseUrl: process.env.CONFORMANCE_URL, subscriptions: true })
