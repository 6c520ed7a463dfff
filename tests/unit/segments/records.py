"""Records to make segments of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st

from tailrace.log.content import Mode
from tailrace.log.state import Producer
from tailrace.segments.format import BLOCK_BYTES, Record, seal

CHAIN: Final = 0x1F00000000000001

bounded = settings(max_examples=40, deadline=None, derandomize=True)

POOL: Final = bytes(i * i % 251 for i in range(2 * BLOCK_BYTES))


def records(
    *slots: bytes | Sequence[bytes], n: int = 0, offset: int = 0, size: int = 0
) -> list[Record]:
    """Bytes or text from a slot on, a second apart; a slot has one body or several."""
    made = []
    for slot in slots:
        for body in [slot] if isinstance(slot, bytes) else slot:
            offset += len(body)
            size += len(body)
            made.append(Record(n, offset, size, 1_700_000_000_000 + n * 1000, body))
        n += 1
    return made


def signed(made: list[Record], *by: Producer | None) -> list[Record]:
    """The same, written by these producers."""
    return [record._replace(author=one) for record, one in zip(made, by, strict=True)]


class Drawn(NamedTuple):
    """Records of any kind from anywhere on, and the offset and size before them."""

    mode: Mode
    start: tuple[int, int]
    made: list[Record]

    def slots(self) -> range:
        return range(self.made[0].slot, self.made[-1].slot + 1)

    def before(self, slot: int) -> tuple[int, int]:
        """Offset and size at which a slot begins."""
        earlier = [(record.offset, record.size) for record in self.made if record.slot < slot]
        return earlier[-1] if earlier else self.start

    def seal(self, begin: int = 0, stop: int = 1 << 60) -> bytes:
        """The segment of the slots from `begin` up to `stop`, or of all."""
        wanted = [record for record in self.made if begin <= record.slot < stop]
        return seal(CHAIN, self.mode, self.before(wanted[0].slot), wanted)


producers = st.builds(Producer, st.sampled_from("abä"), st.integers(0, 2), st.integers(0, 99))


@st.composite
def drawn(draw: st.DrawFn, lengths: Sequence[int] = range(1, 40), appends: int = 3) -> Drawn:
    """Slots of up to `appends` appends, whose bodies have some of the lengths."""
    counts = draw(st.lists(st.integers(1, appends), min_size=1, max_size=20))
    start = draw(st.integers(0, 1 << 40)), draw(st.integers(0, 1 << 40))
    authors = draw(st.sampled_from([st.none(), producers, st.none() | producers]))
    slot, written_at = draw(st.integers(0, 1 << 40)), 0
    made, (offset, size) = [], start
    for count in counts:
        written_at += draw(st.integers(0, 1 << 40))
        for _ in range(count):
            begin = draw(st.integers(0, 99))
            body = POOL[begin : begin + draw(st.sampled_from(lengths))]
            offset, size = offset + draw(st.integers(0, 5)), size + len(body)
            made.append(Record(slot, offset, size, written_at, body, draw(authors)))
        slot += 1
    return Drawn(draw(st.sampled_from(list(Mode))), start, made)
