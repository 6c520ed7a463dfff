"""What a run of the export has done, and what it could not."""

from __future__ import annotations

from typing import Final, NamedTuple

from pyspark.sql import DataFrame

from glue_jobs.shared.job import table

SHOWN: Final = 20
"""Refusals that the log has in full."""


class Refused(NamedTuple):
    """Slots that are not exported."""

    times: int = 0
    """How often that is so."""
    shown: tuple[tuple[str, int, int, str], ...] = ()
    """Some of them: path, first slot, the slot after the last, and why."""

    @classmethod
    def among(cls, rows: DataFrame) -> Refused:
        found = rows.where("refused IS NOT NULL")
        some = found.orderBy("stream", "first").limit(SHOWN)
        shown = some.select("stream", "first", "stop", "refused").collect()
        return cls(found.count(), tuple(tuple(row) for row in shown)) if shown else cls()

    def __str__(self) -> str:
        lines = table(self.shown, ("stream", "first", "stop", "why"))
        more = f"\nand {self.times - SHOWN:,} more" if self.times > SHOWN else ""
        return f"{self.times:,} times:\n{lines}{more}"


class Summary(NamedTuple):
    """What a run has done."""

    finished: tuple[str, ...] = ()
    """Runs that came to their end: this one, and before it one that was left unfinished."""
    streams: int = 0
    segments: int = 0
    messages: int = 0
    partitions: int = 0
    files: int = 0
    bytes: int = 0
    gone: int = 0
    """Slots that were deleted between plan and export."""
    held: Refused = Refused()
    """Where streams are exported up to, and no further."""
    damaged: Refused = Refused()
    """Because of these nothing of their run is registered."""

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
            lines.append(f"some of it for run {self.finished[0]}, which was left unfinished")
        if self.gone:
            lines.append(f"left out {self.gone:,} slots that were deleted meanwhile")
        if self.held.times:
            lines.append(f"held back {self.held}")
        if self.damaged.times:
            lines.append(
                f"cannot read {self.damaged}\n"
                "Nothing is registered before they can be read. Restore the objects, or delete the"
                " streams, and run it again."
            )
        return "\n".join(lines)
