// The functions as `infra.viewer_functions` deploys them; `test_viewer_functions.py` compares.
import { readFileSync } from "node:fs"

const source = (name) => readFileSync(new URL(`../../../infra/edge/${name}.js`, import.meta.url), "utf8")
const deployed = (code) => code.replace(/^ *\/\/.*\n|^ *\n|^ +/gm, "")

const STREAMED = String.raw`/^(POST \/api\/v1\/(watch|replay)|(GET|POST) \/events)$/`
const CONTAINED = {
  functions: String.raw`/^(POST \/api\/v1\/(watch|replay)|(GET|POST) \/events|GET \/v1\/read)$/`,
  containers: String.raw`/^(GET \/(events|v1\/read)$|(PUT|POST|PATCH|DELETE) )/`,
}
const contain = (text, live, writes) =>
  live === "functions"
    ? text
    : text
        .replace(`const STREAMED = ${STREAMED};`, () => `const STREAMED = ${CONTAINED[writes]};`)
        .replace(/selectRequestOriginById\('(live|wait)'\)/g, "selectRequestOriginById('containers')")

export const code = (access, dsPath = "/ds", wait = 20, sse = "held", live = "functions", writes = "functions") =>
  deployed(
    contain(source("viewer_request"), live, writes)
      .replace("const ACCESS = 'closed';", `const ACCESS = '${access}';`)
      .replace("const SECOND = '/ds/';", `const SECOND = '${dsPath && `${dsPath}/`}';`)
      .replace("const WAIT = 20;", `const WAIT = ${wait};`)
      .replace("['long-poll'];", sse === "shared" ? "['long-poll', 'sse'];" : "['long-poll'];"),
  )

export const responseCode = () => deployed(source("viewer_response"))
