"""Prints as JSON what `sam local invoke` would start for every function of a template.

It uses SAM's own classes up to the point where SAM would start a container, and runs in the
environment of aws-sam-cli: `.engines/sam/bin/python functions.py TEMPLATE ENV_VARS`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from samcli.commands.local.lib.local_lambda import LocalLambdaRunner
from samcli.lib.providers.sam_function_provider import SamFunctionProvider
from samcli.lib.providers.sam_stack_provider import SamLocalStackProvider
from samcli.local.docker.lambda_image import Runtime


def main(template: str, env_vars: str) -> None:
    stacks, unreachable = SamLocalStackProvider.get_stacks(template)
    assert not unreachable, unreachable
    provider = SamFunctionProvider(stacks)
    folder = str(Path(template).parent)
    runner = LocalLambdaRunner(
        local_runtime=None,
        function_provider=provider,
        cwd=folder,
        real_path=folder,
        env_vars_values=json.loads(Path(env_vars).read_bytes()),
    )
    found = {each.name: configuration(runner, each) for each in provider.get_all()}
    print(json.dumps(found))


def configuration(runner: Any, function: Any) -> dict[str, Any]:
    config = runner.get_invoke_config(function)
    return {
        "code": config.code_abs_path,
        "layers": [layer.codeuri for layer in config.layers],
        "handler": config.handler,
        "runtime": config.runtime,
        "image": Runtime.get_image_name_tag(config.runtime, config.architecture),
        "architecture": config.architecture,
        "memory": config.memory,
        "seconds": config.timeout,
        "environment": config.env_vars.resolve(),
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
