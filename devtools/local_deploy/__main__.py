"""`make deploy-local`: deploys to a ministack, uses the deployment, redeploys and destroys it."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

from devtools.local_deploy.cable import connected
from devtools.local_deploy.deployment import Cloud, Deployment, wait_for

PATH = "/v1/stream/hello"
STREAM = "hello/chat"


def main() -> None:
    with TemporaryDirectory() as directory, Cloud(Path(directory)) as ministack:
        print(f"ministack is at {ministack.url}")
        deployment = Deployment(ministack, Path(directory))
        deployment.bootstrap()
        deployment.deploy()
        for stack, status in deployment.stacks().items():
            print(f"{stack} {status}")
        secret = deployment.secret()
        deployment.request("PUT", PATH, "without the secret")
        deployment.request("PUT", PATH, secret)
        deployment.request("POST", PATH, secret, "Hello from a Lambda function")
        print(deployment.request("GET", f"{PATH}?offset=-1", secret).text)
        deployment.request("DELETE", PATH, secret)
        wait_for(lambda: bool(deployment.invalidated()))
        print(f"the edge was told to forget {', '.join(deployment.invalidated())}")
        with connected(deployment, secret) as cable:
            print(f"connected to {deployment.cable_url()} as {cable.sid}")
            cable.subscribe(STREAM)
            deployment.broadcast(STREAM, {"text": "Hello from a broadcast"}, secret)
            print(f"{STREAM}: {cable.message()}")
        deployment.rotate()
        print("\n".join(re.findall(r"\S+ \(no changes\)", deployment.deploy())))
        deployment.destroy()


if __name__ == "__main__":
    main()
