"""Draw docs/demo.svg: a writer and a reader in two terminals, from what a real server answers.

Run it with `make demo`. The picture loops every 20 seconds and needs no script to play.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path
from typing import NamedTuple

SECONDS = 20
WIDTH, LINE, TOP, CHAR = 980, 19, 58, 7.45
PANES = {"writer": 20, "reader": 500}
BIN = Path(sys.executable).parent


class Line(NamedTuple):
    at: float
    pane: str
    text: str
    kind: str


def tailrace(*args: str, url: str) -> str:
    run = subprocess.run(
        [BIN / "tailrace", *args, "--url", url], capture_output=True, text=True, check=True
    )
    return run.stdout + run.stderr


def record(url: str) -> list[Line]:
    """Record real commands; only the pauses between them are made up."""
    lines: list[Line] = []

    def step(at: float, pane: str, command: str, output: str = "") -> None:
        lines.append(Line(at, pane, f"$ {command}", "command"))
        printed = [line for line in output.splitlines() if line.strip()]
        lines.extend(Line(at + 0.7, pane, line, "output") for line in printed)

    create = ("create", "chat", "--content-type", "application/json")
    step(0.5, "writer", "tailrace " + " ".join(create), tailrace(*create, url=url))
    follow = ["tail", "-f", "chat", "--offset", "-1"]
    step(2.5, "reader", "tailrace " + " ".join(follow))
    with subprocess.Popen(
        [BIN / "tailrace", *follow, "--url", url], stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdout is not None
        at = 4.5
        for message in ('{"from":"ada","text":"hello"}', '{"from":"bob","text":"hi ada"}'):
            out = tailrace("append", "chat", "--message", message, url=url)
            step(at, "writer", f"tailrace append chat -m '{message}'", out)
            lines.append(Line(at + 0.75, "reader", reader.stdout.readline().rstrip(), "data"))
            at += 3.0
        step(at, "writer", "tailrace close chat", tailrace("close", "chat", url=url))
        reader.wait(10)
        lines.append(Line(at + 0.8, "reader", "$ ▮", "command"))
        step(at + 2.5, "writer", "tailrace read chat", tailrace("read", "chat", url=url))
    return lines


def draw(lines: list[Line]) -> str:
    rows = dict.fromkeys(PANES, 0)
    texts: list[str] = []
    styles: list[str] = []
    for number, line in enumerate(lines):
        x, y = PANES[line.pane], TOP + 20 + rows[line.pane] * LINE
        rows[line.pane] += 1
        text = line.text if len(line.text) <= 60 else line.text[:59] + "…"
        texts.append(f'<text class="{line.kind} l{number}" x="{x}" y="{y}">{escape(text)}</text>')
        percent = 100 * line.at / SECONDS
        styles.append(
            f"@keyframes k{number}{{0%,{percent:.1f}%{{opacity:0}}{percent + 0.5:.1f}%,98%"
            f"{{opacity:1}}100%{{opacity:0}}}}.l{number}{{animation:k{number} {SECONDS}s infinite}}"
        )
    height = TOP + 40 + max(rows.values()) * LINE
    titles = "".join(
        f'<text class="title" x="{x}" y="38">{pane}</text>' for pane, x in PANES.items()
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="ui-monospace,Menlo,Consolas,monospace" font-size="12.4">'
        "<style>.title{fill:#8b949e;font-size:13px}.command{fill:#e6edf3}.output{fill:#8b949e}"
        f".data{{fill:#7ee787}}{''.join(styles)}</style>"
        f'<rect width="{WIDTH}" height="{height}" rx="10" fill="#0d1117"/>'
        f'<path d="M486 20V{height - 20}M0 {TOP - 8}H{WIDTH}" stroke="#30363d"/>'
        f"{titles}{''.join(texts)}</svg>\n"
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as data:
        server = subprocess.Popen(
            [BIN / "tailrace", "serve", "--port", "0", "--data", data],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split(" on ")[1].split()[0]
            lines = record(url)
        finally:
            server.terminate()
            server.wait(10)
    target = Path(__file__).parent.parent / "docs" / "demo.svg"
    target.write_text(draw(lines))
    print(f"wrote {target.name}: {len(lines)} lines in {SECONDS} s")


if __name__ == "__main__":
    main()
