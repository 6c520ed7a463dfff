// The viewer-request function as `infra.viewer_request` deploys it; `test_viewer_request.py` compares.
import { readFileSync } from "node:fs"

export const SOURCE = readFileSync(new URL("../../../infra/edge/viewer_request.js", import.meta.url), "utf8")

export const code = (access) =>
  SOURCE.replace("const ACCESS = 'closed';", `const ACCESS = '${access}';`).replace(/^ *\/\/.*\n/gm, "")
