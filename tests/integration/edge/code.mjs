// The functions as `infra.viewer_functions` deploys them; `test_viewer_functions.py` compares.
import { readFileSync } from "node:fs"

const source = (name) => readFileSync(new URL(`../../../infra/edge/${name}.js`, import.meta.url), "utf8")
const deployed = (code) => code.replace(/^ *\/\/.*\n|^ *\n|^ +/gm, "")

export const code = (access, dsPath = "/ds", wait = 20, sse = "held") =>
  deployed(
    source("viewer_request")
      .replace("const ACCESS = 'closed';", `const ACCESS = '${access}';`)
      .replace("const SECOND = '/ds/';", `const SECOND = '${dsPath && `${dsPath}/`}';`)
      .replace("const WAIT = 20;", `const WAIT = ${wait};`)
      .replace("['long-poll'];", sse === "shared" ? "['long-poll', 'sse'];" : "['long-poll'];"),
  )

export const responseCode = () => deployed(source("viewer_response"))
