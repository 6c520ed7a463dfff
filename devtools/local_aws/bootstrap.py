"""The bootstrap of Lambda's managed Python runtime: finds the task and its layers, then polls.

It is copied to the runtime folder of an environment, beside the folders `task` and `opt`. It must
not import anything from Tailrace, because it stands for Lambda.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    opt = Path(os.environ["LAMBDA_RUNTIME_DIR"]).parent / "opt"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    sys.path[:0] = [
        os.environ["LAMBDA_TASK_ROOT"],
        str(opt / "python" / "lib" / version / "site-packages"),
        str(opt / "python"),
    ]
    from awslambdaric.__main__ import main  # type: ignore[import-not-found]  # Lambda's own

    main([sys.argv[0], os.environ["_HANDLER"]])
