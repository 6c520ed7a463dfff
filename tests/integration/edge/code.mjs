// The viewer-request function as `infra.viewer_request` deploys it; `test_viewer_request.py` compares.
import { readFileSync } from "node:fs"

const SOURCE = readFileSync(new URL("../../../infra/edge/viewer_request.js", import.meta.url), "utf8")

export const code = (access, dsPath = "/ds") =>
  SOURCE.replace("const ACCESS = 'closed';", `const ACCESS = '${access}';`)
    .replace("const SECOND = '/ds/';", `const SECOND = '${dsPath && `${dsPath}/`}';`)
    .replace(/^ *\/\/.*\n|^ +/gm, "")
