"""The second look of each check: what is wrong, if it still is, and what to do about it.

What is wrong has to be seen twice in a row and be the same: between two reads of one look a
transaction may have come.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from glue_jobs.live import Live
from glue_jobs.proving import opened, slots
from glue_jobs.workers import Backend, Row, for_each
from tailrace.history.reader import Manifest
from tailrace.history.segment import BadSegment
from tailrace.log.content import Mode
from tailrace.settings import Settings
from tailrace.store.dynamo import layout
from tailrace.store.dynamo.layout import Name, Stored

AT_ONCE: Final = 8
"""Looks of a worker that are under way at once."""

TRIES: Final = 10
"""Looks at what is another thing each time; then somebody is at work on it, and it is left."""

PAUSE: Final = 0.1
"""Seconds between two looks."""

CHAIN: Final = re.compile("[0-9a-f]{16}")

PROBLEMS: Final = (
    T.StructType()
    .add("check", T.StringType())
    .add("stream", T.StringType())
    .add("slot", T.LongType())
    .add("what", T.StringType())
    .add("fix", T.StringType())
)

RESTORE: Final = "Copy what is missing or wrong from a point-in-time restore of the table."
BACKUP: Final = "Bring the object back from a backup of the bucket."
UNREACHED: Final = "Remove the item: no reader reaches it."
MISTAKEN: Final = "Remove the item: it is taken for the last entry of the stream."
POINTERS: Final = "Correct m, u, w or e of the name item, after a look at the chain's segments."
LATE: Final = "Append what it holds once more and remove the item: a segment has the slot."
FORGOTTEN: Final = "Remove the name item: the stream takes no entry any more."
UNCLAIM: Final = "Remove the claim before it is due: the sweep would remove the object."
COUNT: Final = "Set v of the name item to the number of edges."
CONNECT: Final = "Put the edge, and count it in v of the source's name item."
LOOSE: Final = "Remove the edge, and take it from v of the source's name item."
PART: Final = "Remove the name item that is wrong; to delete its stream would delete the other's."
SWEEP: Final = "Nothing: `tailrace glue sweep --apply` removes it."


class Problem(NamedTuple):
    slot: int | None
    what: str
    fix: str


def problems(suspects: DataFrame, settings: Settings) -> DataFrame:
    """Those of the suspects that are still wrong; `other` is as in `Live`."""

    async def look(backend: Backend, row: Row) -> Sequence[Row]:
        if CHAIN.fullmatch(row["chain"]):
            found = await _twice(LOOKS[row["check"]], Live(backend, settings, row))
        else:
            found = Problem(None, f"'{row['chain']}' is no chain", UNREACHED)
        if found is None:
            return []
        stream = row["path"] or row["chain"]
        return [{"check": row["check"], "stream": stream, **found._asdict()}]

    spread = suspects.repartition("check", "chain", "n", "key")
    return for_each(spread, settings, PROBLEMS, look, AT_ONCE).distinct()


Look = Callable[[Live], Awaitable[Problem | None]]


async def _twice(look: Look, live: Live) -> Problem | None:
    last = None
    for _ in range(TRIES):
        try:
            found = await look(live)
        except (LookupError, ValueError) as error:
            found = Problem(live.n, f"an item of it cannot be read ({error!r})", RESTORE)
        if found is None or found == last:
            return found
        last = found
        await asyncio.sleep(PAUSE)
    return None


# In the table


async def _slot(live: Live) -> Problem | None:
    if live.n is None:
        partition = layout.chain_partition(live.chain)
        if not await live.has({"p": layout.text(partition), "s": layout.text(live.key)}):
            return None
        return Problem(None, f"'{live.key}' in {partition} is no slot", MISTAKEN)
    entry, before = await live.entry(live.n), await live.last(live.n)
    # The name after them: it says that a slot is archived, or not retained, before the slot goes.
    name = await live.name()
    if entry is None or name is None or live.n < name.earliest:
        return None
    state = entry.state
    if not (entry.has_data or state.closed or state.gone):
        what = "it has no data, and neither closes nor deletes the stream"
        return Problem(live.n, what, RESTORE)
    return None if before is None else _follows_wrong(entry, before, name)


def _follows_wrong(entry: Stored, before: Stored, name: Name) -> Problem | None:
    state, prior = entry.state, before.state
    if prior.gone:
        return Problem(entry.n, f"it comes after the tombstone in slot {before.n}", UNREACHED)
    if prior.closed and not state.gone:
        return Problem(
            entry.n, f"it comes after slot {before.n}, a closed stream's last", UNREACHED
        )
    what = None
    if state.at < prior.at:
        what = f"it is {prior.at - state.at} ms older than slot {before.n}"
    elif entry.n == before.n + 1:
        what = _ends_wrong(entry, before.offset, before.size, name.stream.config.mode)
    elif entry.n > max(name.archived, name.earliest):
        what = _nowhere(before.n + 1, entry.n)
    return None if what is None else Problem(entry.n, what, RESTORE)


def _ends_wrong(entry: Stored, offset: int | None, size: int, mode: Mode) -> str | None:
    """Of an entry that begins there."""
    length = entry.length if entry.has_data else 0
    if entry.size != size + length:
        return f"the size after it is {entry.size}, not {size + length}"
    if offset is None:
        return None
    if mode is Mode.JSON and length:
        right, expected = entry.offset > offset, f"more than {offset}"
    else:
        right, expected = entry.offset == offset + length, f"{offset + length}"
    return None if right else f"the offset after it is {entry.offset}, not {expected}"


def _nowhere(first: int, stop: int) -> str:
    which = f"slot {first} is" if stop == first + 1 else f"slots {first} to {stop - 1} are"
    return f"{which} neither in the table nor in a segment"


async def _beginning(live: Live) -> Problem | None:
    name = await live.name()
    if name is None:
        return None
    base, earliest, let_go = name.stream.config.base[0], name.earliest, name.let_go
    stray, again = await live.first(0, base), await live.first(earliest, let_go)
    first, name = await live.first(earliest), await live.name()
    if name is None or name.earliest != earliest:
        return None  # Retention is at work on it.
    if stray is not None:
        return Problem(stray.n, f"it is before slot {base}, where its chain begins", UNREACHED)
    if again is not None:
        what = f"it is in the table again: all slots before {let_go} were let go"
        return Problem(again.n, what, LATE)
    kept = max(name.archived, earliest)
    if first is None:
        what = "the last entry is not in the table; who appends now begins the stream anew"
        return Problem(kept, what, RESTORE) if kept > base else None
    return Problem(first.n, _nowhere(kept, first.n), RESTORE) if first.n > kept else None


async def _pointer(live: Live) -> Problem | None:
    name = await live.name()
    if name is None:
        return None
    base = name.stream.config.base[0]
    if min(name.earliest, name.let_go) < base:
        slot = min(name.earliest, name.let_go)
        return Problem(slot, f"slots before it are gone, but the chain begins at {base}", POINTERS)
    furthest = max(name.let_go, name.exported)
    if furthest > name.archived:
        done = "let go" if furthest == name.let_go else "exported"
        what = f"slots before it were {done}, but archived are those before {name.archived}"
        return Problem(furthest, what, POINTERS)
    return None


async def _tombstone(live: Live) -> Problem | None:
    last, name = await live.last(), await live.name()
    if name is None:
        return None
    if name.tombstone is None:
        what = "it is a tombstone, but the stream still has its name"
        return Problem(last.n, what, FORGOTTEN) if last is not None and last.state.gone else None
    tombstone = await live.entry(name.tombstone)
    if tombstone is not None and tombstone.state.gone:
        return None
    return Problem(name.tombstone, "the stream is deleted, but this is no tombstone", RESTORE)


# In segments


async def _manifest(live: Live) -> Problem | None:
    for _ in range(TRIES):
        name = await live.name()
        if name is None:
            return None
        found = await live.manifests(name.earliest)
        again = await live.name()
        # A segment is committed together with its name.
        if again is not None and (again.archived, again.earliest) == (name.archived, name.earliest):
            return _broken(found, name)
    return None


def _broken(manifests: Sequence[Manifest], name: Name) -> Problem | None:
    """The first thing that is wrong with the segments of a chain."""
    base, *begin = name.stream.config.base
    stop, start = max(base, name.earliest), None
    for i, each in enumerate(manifests):
        # Only the first may begin before what retention has left.
        if not (stop if i else base) <= each.first <= stop:
            return Problem(each.first, f"a segment begins here, not at slot {stop}", RESTORE)
        what = _sums_wrong(each, begin if each.first == base else start, name.stream.config.mode)
        if what is not None:
            return Problem(each.first, what, RESTORE)
        stop, start = each.stop, [each.offset, each.size]
    if stop != name.archived and (manifests or name.archived > stop):
        what = f"segments end here, but for the name they do at slot {name.archived}"
        return Problem(stop, what, RESTORE if stop < name.archived else POINTERS)
    return None


def _sums_wrong(manifest: Manifest, start: Sequence[int] | None, mode: Mode) -> str | None:
    """`start`: offset and size where it has to begin, if they are known."""
    count, data = manifest.stop - manifest.first, manifest.size - manifest.begin
    of = f"a segment of {count} slots and {data} bytes"
    json = mode is Mode.JSON
    if count < 1 or manifest.data_bytes != data + (count - 1 if json else 0):
        return f"{of} stores {manifest.data_bytes} bytes"
    if start is None:
        return None
    if manifest.begin != start[1]:
        return f"{of} begins at size {manifest.begin}, not {start[1]}"
    step = manifest.offset - start[0]
    right = step >= count if json else step == data
    return None if right else f"{of} moves the offset by {step}"


async def _seam(live: Live) -> Problem | None:
    assert live.n is not None
    entry = await live.entry(live.n)
    before, own = await live.covering(live.n - 1), await live.covering(live.n)
    name = await live.name()
    if entry is None or name is None or live.n < name.earliest:
        return None
    config = name.stream.config
    starts = [config.base] if live.n == config.base[0] else []
    if before is not None and before.stop == live.n:
        starts.append((before.stop, before.offset, before.size))
    wrong = [_ends_wrong(entry, offset, size, config.mode) for _, offset, size in starts]
    what = next(filter(None, wrong), None)
    if what is None and own is not None:
        what = await _differs(live, entry, own, config.mode)
    return None if what is None else Problem(live.n, what, RESTORE)


async def _differs(live: Live, entry: Stored, manifest: Manifest, mode: Mode) -> str | None:
    """Of an entry whose slot is in a segment."""
    if entry.n == manifest.first and (what := _ends_wrong(entry, None, manifest.begin, mode)):
        return what
    hot = {"offset": entry.offset, "size": entry.size, "at": entry.state.at}
    if entry.object_key is None:
        hot["checksum"] = zlib.crc32(entry.body)
    cold: Row = {"offset": manifest.offset, "size": manifest.size}
    if entry.n < manifest.stop - 1 or all(hot[each] == value for each, value in cold.items()):
        segment = await live.object(manifest.key)
        try:
            cold = {} if segment is None else next(slots(opened(segment, manifest, mode), entry.n))
        except BadSegment:
            return None  # This is told of the segment.
    for what, value in hot.items():
        if cold.get(what, value) != value:
            return f"its {what} is {value} in the table, {cold[what]} in its segment"
    return None


async def _segment(live: Live) -> Problem | None:
    assert live.n is not None
    manifest, name = await live.manifest(live.n), await live.name()
    if manifest is None or manifest.key != live.key or name is None:
        return None
    segment = await live.object(live.key)
    if segment is None:
        return None  # This is told of the object.
    try:
        opened(segment, manifest, name.stream.config.mode)
    except BadSegment as error:
        return Problem(live.n, f"the segment {live.key} is wrong: {error}", BACKUP)
    return None


async def _object(live: Live) -> Problem | None:
    wanted, name = await live.named(), await live.name()
    if wanted is None or name is None:
        return None
    found = await live.length(live.key)
    if found == wanted:
        return None
    is_ = "is not there" if found is None else f"has {found} bytes, not {wanted}"
    return Problem(live.n, f"the object {live.key} {is_}", BACKUP)


async def _claim(live: Live) -> Problem | None:
    claimed, wanted, name = (
        await live.has(layout.claim_key(live.key)), await live.named(), await live.name(),
    )  # fmt: skip
    if not claimed or wanted is None or name is None:
        return None
    return Problem(live.n, f"the object {live.key} is claimed as if nothing named it", UNCLAIM)


# Between streams


async def _fork(live: Live) -> Problem | None:
    name = await live.name()
    if name is None or name.stream.config.fork is None:
        return None
    lineage, base = name.stream.config.fork.lineage, name.stream.config.base[0]
    if not live.key:
        end = lineage[-1].until if lineage else 0
        what = f"the fork begins here, but what it reads through ends at {end}"
        return Problem(base, what, RESTORE) if base != end else None
    start, source = 0, int(live.key, 16)
    for ancestor in lineage:
        if ancestor.id == source:
            return await _short(live, source, start, ancestor.until)
        start = ancestor.until
    return None


async def _short(live: Live, source: int, start: int, until: int) -> Problem | None:
    """Of a chain that is read from one slot up to another."""
    of = f"slots {start} to {until - 1} are read from chain {live.key}"
    name = await live.name_of(live.other, source)
    if name is None:
        return Problem(start, f"{of}, which has no name", RESTORE)
    if name.stream.config.base[0] != start:
        begins = name.stream.config.base[0]
        return Problem(start, f"{of}, which begins at {begins}", RESTORE)
    last = await live.last(chain=source)
    end = name.archived
    if last is not None:
        end = max(end, last.n + 1 if last.has_data else (last.state.end or last.n))
    return None if end >= until else Problem(start, f"{of}, which ends at {end}", RESTORE)


async def _edge(live: Live) -> Problem | None:
    if not live.key:
        return await _count(live)
    other = int(live.key, 16)
    if await live.has(layout.edge_key(live.chain, other)):
        fork = await live.name_of(live.other, other)
        if fork and fork.stream.config.fork and fork.stream.config.fork.parent == live.chain:
            return None
        return Problem(None, f"it has an edge to {live.key}, which is no fork of it", LOOSE)
    edge, name = await live.has(layout.edge_key(other, live.chain)), await live.name()
    if edge or name is None or name.stream.config.fork is None:
        return None
    return Problem(None, f"its source, chain {live.key}, has no edge to it", CONNECT)


async def _count(live: Live) -> Problem | None:
    for _ in range(TRIES):
        name, edges, again = (
            await live.name(), await live.count(f"E{live.chain:016x}"), await live.name(),
        )  # fmt: skip
        if name is None or again is None:
            return None
        # An edge comes and goes together with its count.
        if name.forked == again.forked:
            what = f"its name counts {name.forked} forks, but it has {edges} edges"
            return Problem(None, what, COUNT) if name.forked != edges else None
    return None


async def _twin(live: Live) -> Problem | None:
    one, two = await live.name(), await live.name_of(live.key, live.chain)
    if one is None or two is None:
        return None
    return Problem(None, f"'{live.key}' stands for the same chain, {live.chain:016x}", PART)


async def _orphan(live: Live) -> Problem | None:
    if live.path is not None:
        return None  # It was created a moment ago.
    last = await live.last()
    if last is not None and last.state.gone and "d" in last.item:
        return None
    there = [await live.any_in(f"{kind}{live.chain:016x}") for kind in "CSP"]
    return Problem(None, "the chain has no name", SWEEP) if any(there) else None


LOOKS: Final[Mapping[str, Look]] = {
    "slots": _slot,
    "beginnings": _beginning,
    "pointers": _pointer,
    "tombstones": _tombstone,
    "manifests": _manifest,
    "seams": _seam,
    "objects": _object,
    "segments": _segment,
    "claims": _claim,
    "forks": _fork,
    "edges": _edge,
    "twins": _twin,
    "orphans": _orphan,
}
