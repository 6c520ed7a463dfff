"""The result of a run of the export."""

from __future__ import annotations

from typing import Final, NamedTuple

from pyspark.sql import DataFrame

from glue_jobs.shared.job import table

MAX_SHOWN: Final = 20
"""Refused slots that the output lists."""


class Refused(NamedTuple):
    """Ranges of slots that are not exported."""

    times: int = 0
    """The number of ranges."""
    shown: tuple[tuple[str, int, int, str], ...] = ()
    """The first of them: path, first slot, slot after the last, reason."""

    @classmethod
    def among(cls, rows: DataFrame) -> Refused:
        refused = rows.where("refused IS NOT NULL")
        first = refused.orderBy("stream", "first").limit(MAX_SHOWN)
        shown = first.select("stream", "first", "stop", "refused").collect()
        return cls(refused.count(), tuple(tuple(row) for row in shown)) if shown else cls()

    def __str__(self) -> str:
        lines = table(self.shown, ("stream", "first", "stop", "reason"))
        more = f"\nand {self.times - MAX_SHOWN:,} more" if self.times > MAX_SHOWN else ""
        return f"{self.times:,} times:\n{lines}{more}"


class Summary(NamedTuple):
    """The counts of a run."""

    finished: tuple[str, ...] = ()
    """The completed runs: this one, possibly after an unfinished one."""
    streams: int = 0
    segments: int = 0
    messages: int = 0
    partitions: int = 0
    files: int = 0
    bytes: int = 0
    gone: int = 0
    """Slots that were deleted after planning."""
    held: Refused = Refused()
    """Gaps, which end the export of their streams."""
    damaged: Refused = Refused()
    """Unreadable slots, because of which the run registered nothing."""

    @property
    def metrics(self) -> dict[str, float]:
        return {"history_exported_total": self.messages}

    def __str__(self) -> str:
        source = f"{self.streams:,} streams, from {self.segments:,} segments"
        lines = [
            f"exported {self.messages:,} messages of {source}",
            f"to {self.files:,} files ({self.bytes:,} bytes) in {self.partitions:,} partitions",
        ]
        if len(self.finished) > 1:
            lines.append(f"including run {self.finished[0]}, which was unfinished")
        if self.gone:
            lines.append(f"skipped {self.gone:,} slots that were deleted meanwhile")
        if self.held.times:
            lines.append(f"held back {self.held}")
        if self.damaged.times:
            lines.append(
                f"cannot read {self.damaged}\n"
                "Nothing was registered. Restore the objects or delete the streams, then run the"
                " export again."
            )
        return "\n".join(lines)
