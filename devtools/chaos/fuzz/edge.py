"""Reads that the viewer-request function and the origin judge, each for itself."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from devtools.chaos.report import Report
from devtools.viewer_function.agreement import WAYS, ask_origin, run_viewer_function
from devtools.viewer_function.requests import requests
from infra.viewer_functions import request_code

DECISIONS: Final = "decisions of edge and origin"


def judge_edge(seed: int, count: int, report: Report) -> None:
    """Check that the edge verifies no request that the origin would refuse."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        for case, edge in run_viewer_function(request_code(), requests(seed, count), Path(folder)):
            verified, reason = edge["pass"] is not None, ask_origin(case)
            report.count(DECISIONS)
            report.count("reads verified by the edge", int(verified))
            if verified and reason not in WAYS:
                report.violation(DECISIONS, f"verified, but the origin says {reason}: {case}")
