"""Invariants of a world at its end, beyond what linearizability says of streams."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Final, TypeVar

from devtools.dynamodb_simulator.loop import EPOCH
from devtools.dynamodb_simulator.network import LATE
from devtools.linearizability import checker as happened
from devtools.linearizability.checker import Acknowledged, Rejected, check
from tailrace.errors import OffsetMismatch, OffsetTrimmed, SequenceConflict, StreamGone
from tailrace.log.expiry import renewal_slack
from tailrace.log.offsets import START, Position
from tailrace.segments.format import unpack
from tailrace.segments.reader import Manifest
from tailrace.store.dynamodb import layout
from tailrace.store.dynamodb.layout import Name, Stored
from tests.integration.simulation.archivist import archive_all
from tests.integration.simulation.truth import Past, Truth
from tests.integration.simulation.world import GRACE, SLOT_APPENDS, SLOT_BYTES, Call, World

T = TypeVar("T")

TRIED = 2 * LATE
"""A grace period counts from when something was sent, and that may have been tried for so long."""


async def judge(world: World) -> Truth:
    """Let the world have its way; an AssertionError lists what should not have happened."""
    await world.run()
    truth = Truth(world)
    history = truth.history()
    rules = (*TABLE_RULES, a_listing_shows_what_is_there)
    found = [*truth.found, *_broken(STORY_RULES, truth), *_broken(rules, Left(truth))]
    try:
        check(history, truth.final())
    except AssertionError as error:
        found.append(str(error))
    if world.archived:
        await archive_all(world)
    await world.tidy()
    later = Truth(world)
    found += later.found[len(truth.found) :]
    found += _broken((nothing_is_removed_too_early, no_object_goes_too_early), later)
    found += _broken((*TABLE_RULES, nothing_is_left_of_the_dead), Left(later))
    if world.archived and not found:
        found += [violation async for violation in every_offset_reads_the_same(later)]
    assert not found, "\n".join(found)
    return truth


def _broken(rules: Iterable[Callable[[T], Iterator[str]]], facts: T) -> Iterator[str]:
    return (violation for rule in rules for violation in rule(facts))


# The rules for what happened


def nothing_is_born_without_a_reason(truth: Truth) -> Iterator[str]:
    for past in truth.pasts.values():
        # An attempt that was given up may be carried out when its call has returned.
        if not any(
            call.verb == "create" and call.invoked <= past.born
            and (past.born <= call.returned + LATE or not call.clear)
            for call in _calls(truth, past)
        ):  # fmt: skip
            yield f"nobody created {past}, born at {past.born}"


def nothing_dies_without_a_reason(truth: Truth) -> Iterator[str]:
    reasons: set[Call] = set()
    for past in truth.pasts.values():
        calls = {
            call
            for call in _calls(truth, past)
            if call.verb == "delete" and call.invoked <= past.died < math.inf
            and ((call.fine and past.died <= call.returned) or not call.clear)
        }  # fmt: skip
        reasons |= calls
        if past.died < math.inf and not calls and not past.expires:
            yield f"nobody deleted {past}, which died at {past.died}"
        elif past.died < math.inf and not calls:
            yield from _expires_early(truth, past)
    for call in truth.world.calls:
        if call.verb == "delete" and call.fine and call not in reasons:
            yield f"nothing was deleted: {call}"


def _expires_early(truth: Truth, past: Past) -> Iterator[str]:
    config = past.stream.config
    if config.expires_at is not None and _ms(past.died) < config.expires_at:
        yield f"{past} expired at {past.died}, before its time"
    for call in _calls(truth, past) if config.ttl is not None else ():
        if (
            call.fine and call.verb in ("read", "append") and past.spans(call)
            and _ms(past.died) < _ms(call.invoked) + (config.ttl or 0) * 1000
            and not _note_was_lost(truth, call)
        ):  # fmt: skip
            yield f"{past} expired at {past.died}, within {config.ttl} s of {call}"


def _note_was_lost(truth: Truth, call: Call) -> bool:
    """Whether the table did not take the note that the stream was in use."""
    return any(
        event.what == "given up" and event.operation == "UpdateItem"
        and event.at > call.invoked and event.subject.endswith(f"/{call.path}")
        for event in truth.world.table.trace()
    )  # fmt: skip


def nothing_is_served_after_its_time(truth: Truth) -> Iterator[str]:
    for past in truth.pasts.values():
        config = past.stream.config
        calls = _calls(truth, past) if past.expires else []
        for call in calls:
            if not call.fine or call.verb == "delete" or not past.spans(call):
                continue
            if config.expires_at is not None and _ms(call.invoked) >= config.expires_at:
                yield f"{past} expired at {config.expires_at}, but answered {call}"
            elif config.ttl is not None:
                # A call without an answer may have been an access at any time since.
                uses = (
                    min(other.returned, call.invoked) if other.clear else call.invoked
                    for other in calls
                    if other.invoked < call.invoked
                )
                last = max(uses, default=past.born)
                if _ms(call.invoked) > _ms(last) + config.ttl * 1000 + renewal_slack(config.ttl):
                    yield f"{past} lives {config.ttl} s, was last used at {last}, answered {call}"


def only_what_forks_need_is_called_gone(truth: Truth) -> Iterator[str]:
    for call in truth.world.calls:
        if call.outcome == StreamGone.code and not any(
            past.died < past.released and past.died <= call.returned
            and call.invoked <= past.released
            for past in truth.at(call.path)
        ):  # fmt: skip
            yield f"no fork needs it, but it is called gone: {call}"


def entries_add_up(truth: Truth) -> Iterator[str]:
    for past in truth.pasts.values():
        n, offset, size = past.stream.config.base
        at, gone = 0, False
        for slot, entry in sorted(past.entries.items()):
            state, parts, body = entry.state, entry.parts, past.bodies.get(slot, b"")
            offset, size = offset + len(body), size + len(body)
            if (
                (slot, entry.offset, entry.size) != (n, offset, size)
                or state.written_at < at
                or gone
            ):
                yield f"slot {slot} of {past} does not follow slot {n - 1}: {state}"
            if entry.has_data and entry.length != len(body):
                yield f"slot {slot} of {past} has {len(body)} bytes, but says {entry.length}"
            if parts and [part.length for part in parts] != [part.step for part in parts]:
                yield f"slot {slot} of {past} counts other than bytes: {parts}"
            if parts and sum(part.length for part in parts) != len(body):
                yield f"slot {slot} of {past} has {len(body)} bytes, but its appends are {parts}"
            n, at, gone = slot + 1, state.written_at, state.deleted


def appends_are_as_they_were_sent(truth: Truth) -> Iterator[str]:
    """Each append of a slot has its own author, Stream-Seq and place, like one in its own slot."""
    events = [event for event in truth.world.history.events if isinstance(event, happened.Append)]
    sent = {event.body: event.producer for event in events}
    sequences, places = truth.world.sequences, truth.world.expected
    for past in truth.pasts.values():
        last = ""
        for each in past.own:
            if each.author != sent.get(each.body):
                yield f"{past} has an append of {sent.get(each.body)} that says otherwise: {each}"
            place = places.get(each.body)
            if place and (place.offset != each.begin or place.epoch not in (0, past.epoch)):
                yield f"{past} has an append elsewhere than at {place}: {each}"
            sequence = sequences.get(each.body, last)
            if sequence < last or (sequence == last and each.body in sequences):
                yield f"{past} has an append that was sent with {sequence} after {last}: {each}"
            last = sequence
        if (past.last.seq or "") != last:
            yield f"{past} has had {last}, but says {past.last}"


def a_slot_is_bounded(truth: Truth) -> Iterator[str]:
    for past in truth.pasts.values():
        for slot, entry in past.entries.items():
            if len(entry.parts) > SLOT_APPENDS:
                yield f"slot {slot} of {past} has {len(entry.parts)} appends"
            if entry.parts and entry.length > SLOT_BYTES:
                yield f"slot {slot} of {past} has {entry.length} bytes in several appends"


def a_mismatch_has_a_reason(truth: Truth) -> Iterator[str]:
    for event in truth.world.history.events:
        match event:
            case happened.Append(outcome=Rejected(OffsetMismatch.code)):
                expected = truth.world.expected[event.body]
                for past in truth.at(event.stream):
                    if (
                        past.born < event.invoked and event.returned < past.died
                        and past.ends_at(expected, event.invoked)
                        and past.ends_at(expected, event.returned)
                    ):  # fmt: skip
                        yield f"{past} ended where it should, but was said not to: {event}"


def a_sequence_is_rejected_for_a_later_one(truth: Truth) -> Iterator[str]:
    appends = [event for event in truth.world.history.events if isinstance(event, happened.Append)]
    sequences = truth.world.sequences
    for event in appends:
        if event.outcome == Rejected(SequenceConflict.code) and not any(
            other is not event and other.stream == event.stream
            and other.invoked < event.returned
            and sequences.get(other.body, "") >= sequences[event.body]
            for other in appends
        ):  # fmt: skip
            yield f"rejected for its sequence without a reason: {event}"


def a_fork_continues_its_source(truth: Truth) -> Iterator[str]:
    for past in truth.pasts.values():
        fork = past.stream.config.fork
        if fork is None:
            continue
        assert past.parent is not None
        source = past.parent.content
        slot = past.stream.config.base[0]
        before = [each for each in source if each.slot < slot]
        size = sum(len(each.body) for each in before)
        inherited = [each for each in past.content if each.slot < slot]
        if past.stream.config.base != (slot, size, size) or inherited != before:
            yield f"{past} does not continue {past.parent}"
        copied = [each.body for each in past.copied]
        if fork.sub_offset:
            split = source[len(before) + len(copied)].body
            copied.append(split[: fork.sub_offset])
        first = len(past.placed) - len(past.own)
        if [each.body for each in past.placed[:first]] != copied:
            yield f"{past} does not begin with what it has of slot {slot} of {past.parent}"


def a_fork_at_the_tail_lacks_nothing(truth: Truth) -> Iterator[str]:
    for chain, invoked in truth.world.forked:
        fork = truth.pasts[chain].stream.config.fork
        assert fork is not None
        source = truth.pasts[fork.parent].placed
        base = truth.pasts[chain].stream.config.base[0]
        later = {each.body for each in source if each.slot >= base}
        for event in truth.world.history.events:
            match event:
                case happened.Append(stream=fork.source, outcome=Acknowledged()):
                    if event.returned < invoked and event.body in later:
                        yield f"{truth.pasts[chain]} lacks what was acknowledged before: {event}"


def nothing_is_removed_too_early(truth: Truth) -> Iterator[str]:
    for at, past, slot in truth.removed:
        archived = past.archived.get(slot, math.inf) + GRACE - TRIED <= at
        forgotten = slot < past.earliest(at) and past.filled[slot] + GRACE - TRIED <= at
        last = max(n for n, filled in past.filled.items() if filled <= at)
        # A delete counts from when it was sent.
        if at < past.died + GRACE - LATE and not ((archived or forgotten) and slot < last):
            yield f"slot {slot} of {past} was removed at {at}"


def no_object_goes_too_early(truth: Truth) -> Iterator[str]:
    for key, unnamed in truth.unnamed.items():
        past = truth.pasts[int(key.split("/")[1], 16)]
        gone, since = truth.world.objects.gone.get(key, math.inf), min(unnamed, past.died)
        if gone < since + GRACE - TRIED:
            yield f"{key} went at {gone}, but was in use until {since}"


def only_what_was_forgotten_is_called_trimmed(truth: Truth) -> Iterator[str]:
    for call in truth.world.calls:
        if call.outcome == OffsetTrimmed.code and not truth.world.mix.retention:
            yield f"nothing was forgotten, but what was asked for is called trimmed: {call}"
    for path, slot, earliest, returned in truth.world.trimmed:
        pasts = truth.at(path)
        if not any(slot < past.earliest(returned) for past in pasts):
            yield f"slot {slot} of {path} was called trimmed, but is there"
        if not any(earliest in (*past.tokens, *past.ends) for past in pasts):
            yield f"{path} was said to begin at {earliest}, which is not an offset of it"


def only_what_is_of_another_stream_is_called_stale(truth: Truth) -> Iterator[str]:
    for path, position, invoked, returned in truth.world.stale:
        if not any(
            past.born <= returned and invoked <= past.died
            and (position.epoch not in (0, past.epoch) or position.slot > past.tail(invoked))
            for past in truth.at(path)
        ):  # fmt: skip
            yield f"{position} of {path} was called stale at {returned}, but is an offset of it"


def writers_are_told_offsets_of_their_stream(truth: Truth) -> Iterator[str]:
    for path, told in truth.world.offsets.items():
        known = {each for past in truth.at(path) for each in (*past.tokens, *past.ends)}
        for offset in told:
            if offset not in (START, *known):
                yield f"{offset} was told to a writer of {path}, but is no place of it"


def _calls(truth: Truth, past: Past) -> list[Call]:
    return [call for call in truth.world.calls if call.path == past.stream.path]


def _ms(at: float) -> int:
    return int((EPOCH + at) * 1000)


# The rules for what is left


class Left:
    """The items and the objects that are there."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self.names: dict[int, Name] = {}
        self.chains = defaultdict[int, dict[int, Stored]](dict)
        self.edges: set[tuple[int, int]] = set()
        self.claims: set[str] = set()
        self.segments = defaultdict[int, list[Manifest]](list)
        self.producers: set[int] = set()
        self.due: set[int] = set()
        """The chains that a sweep will remove."""
        for item in truth.world.table.items():
            partition, sort = item["p"]["S"], item["s"]["S"]
            match partition[0]:
                case "N":
                    name = layout.name_of(item)
                    self.names[name.stream.id] = name
                case "C":
                    chain = int(partition[1:], 16)
                    self.chains[chain][int(sort)] = layout.entry_of(item)
                    if "d" in item:
                        self.due.add(chain)
                case "E":
                    self.edges.add((int(partition[1:], 16), int(sort, 16)))
                case "P":
                    self.producers.add(int(partition[1:], 16))
                case "B":
                    self.claims.add(sort)
                case "S":
                    manifest = layout.manifest_of(item)
                    self.segments[manifest.chain].append(manifest)
        self.objects = truth.world.objects.keys()
        self.bodies = {
            entry.object_key: chain
            for chain, entries in self.chains.items()
            for entry in entries.values()
            if entry.object_key is not None
        }

    def past(self, chain: int) -> Past:
        return self.truth.pasts[chain]

    def archived(self, chain: int) -> set[int]:
        """The slots that the table need not have."""
        segments = (range(each.first, each.stop) for each in self.segments.get(chain, ()))
        return {n for slots in segments for n in slots}

    def needed(self, chain: int) -> bool:
        return any(parent == chain for parent, _ in self.edges)


def chains_have_no_holes(left: Left) -> Iterator[str]:
    for chain, entries in left.chains.items():
        past = left.past(chain)
        begin, last = max(past.stream.config.base[0], past.earliest()), max(past.entries)
        lacking = set(range(begin, last + 1)) - entries.keys() - left.archived(chain)
        # What is to be swept goes in any order, and whoever does it may die.
        if chain not in left.due and (lacking or last not in entries):
            yield f"{past} lacks {sorted(lacking)}, has {sorted(entries)} of {last + 1}"


def segments_hold_what_was_written(left: Left) -> Iterator[str]:
    for chain, manifests in left.segments.items():
        if chain in left.due:
            continue
        past, name = left.past(chain), left.names.get(chain)
        n, offset, size = past.stream.config.base
        forgotten = past.earliest()
        for manifest in manifests:
            if manifest.key not in left.objects:
                yield f"{past} has lost {manifest.key}"
                continue
            parts = unpack(left.truth.world.objects[manifest.key])
            if n < manifest.first <= forgotten:
                n, offset, size = manifest.first, parts.offset, parts.size
            entries = [past.entries[slot] for slot in range(manifest.first, manifest.stop)]
            slots = [each for each in past.placed if manifest.first <= each.slot < manifest.stop]
            bodies = [each.body for each in slots]
            producers = [each.author for each in slots]
            if (parts.first, parts.offset, parts.size) != (n, offset, size):
                yield f"{manifest} of {past} does not follow slot {n - 1}"
            elif [*parts.bodies()] != bodies or [*parts.producers()] != producers:
                yield f"{manifest} of {past} does not hold what was written"
            n, (offset, size) = parts.stop, parts.end
            if (n, offset, size) != (manifest.stop, entries[-1].offset, entries[-1].size):
                yield f"{manifest} of {past} says what is not so"
        if name is not None and name.archived != max(n, forgotten):
            yield f"{past} is archived up to {n}, but its name says {name.archived}"


def a_chain_is_named_or_has_a_tombstone(left: Left) -> Iterator[str]:
    for chain, name in left.names.items():
        entries = left.chains.get(chain, {})
        tombstone = max(entries) if entries and entries[max(entries)].state.deleted else None
        if tombstone != name.tombstone:
            yield f"{left.past(chain)} has its tombstone in {tombstone}, the name: {name}"
        if chain in left.due:
            yield f"{left.past(chain)} has a name, but is to be swept"
    for chain, entries in left.chains.items():
        if chain not in left.names and not entries[max(entries)].state.deleted:
            yield f"{left.past(chain)} has no name, but was not deleted"
        if chain not in left.names and chain not in left.due:
            yield f"{left.past(chain)} has no name, and will never be swept"
    for chain in left.producers - left.chains.keys():
        yield f"producers are left of {left.past(chain)}, but no entry"


def every_fork_has_its_edge(left: Left) -> Iterator[str]:
    needed = {
        (name.stream.config.fork.parent, chain)
        for chain, name in left.names.items()
        if name.stream.config.fork is not None
    }
    for parent, fork in left.edges - needed:
        yield f"an edge from {left.past(parent)} to {left.past(fork)}, which is gone"
    for parent, fork in needed - left.edges:
        yield f"no edge from {left.past(parent)} to {left.past(fork)}"
    for chain, name in left.names.items():
        edges = sum(parent == chain for parent, _ in left.edges)
        if edges != name.forked:
            yield f"{left.past(chain)} has {edges} edges, but counts {name.forked} forks"


def what_forks_inherit_is_there(left: Left) -> Iterator[str]:
    for name in left.names.values():
        begin = left.past(name.stream.id).earliest()
        for chain, until in name.stream.config.fork.lineage if name.stream.config.fork else ():
            lacking = set(range(begin, until)) - left.chains.get(chain, {}).keys()
            if not lacking <= left.archived(chain):
                yield f"{name.stream.path} lacks slots {lacking} of {left.past(chain)}"
            begin = until


def every_body_is_there(left: Left) -> Iterator[str]:
    for key, chain in left.bodies.items():
        if key not in left.objects and chain not in left.due:
            yield f"{left.past(chain)} has lost {key}"


def every_object_is_known(left: Left) -> Iterator[str]:
    segments = {each.key for manifests in left.segments.values() for each in manifests}
    for key in left.objects - left.bodies.keys() - left.claims - segments:
        # Of an archivist that died before it committed its segment: the sweep job looks for those.
        if not key.startswith("segments/") or key in left.truth.segments:
            yield f"nobody knows {key}"


def a_listing_shows_what_is_there(left: Left) -> Iterator[str]:
    """Holds until time goes on."""
    listed = {
        each.stream.id: each.state.next_offset(each.stream.config.epoch)
        for each in left.truth.world.listed
    }
    there = {
        chain: left.past(chain).next_offset
        for chain, name in left.names.items()
        if name.tombstone is None and (chain in listed or not left.past(chain).expires)
    }
    if listed != there:
        yield f"listed as {listed}, but there is {there}"


def nothing_is_left_of_the_dead(left: Left) -> Iterator[str]:
    """Holds once everything had its time."""
    for chain in left.chains.keys() - left.names.keys():
        if not left.needed(chain):
            yield f"{left.past(chain)} is still there"
    for chain, name in left.names.items():
        if name.tombstone is not None and not left.needed(chain):
            yield f"{left.past(chain)} is kept for forks, but there are none"
    for key in left.claims:
        yield f"{key} is still claimed"
    for chain in left.segments.keys() - left.names.keys():
        yield f"segments are left of {left.past(chain)}"


async def every_offset_reads_the_same(truth: Truth) -> AsyncIterator[str]:
    """Holds when entries, whatever has become of them, are what they were."""
    process = await truth.world.start()
    for name in Left(truth).names.values():
        past = truth.pasts[name.stream.id]
        if name.tombstone is not None or past.expires:
            continue
        content = past.content
        kept = [place for place, each in enumerate(content) if each.slot >= past.earliest()]
        places = [(each, content[each].slot, content[each].begin) for each in kept]
        for start, slot, offset in [*places, (len(content), past.last.tail, past.last.offset)]:
            position = Position(slot, offset, past.epoch)
            view = await process.streams.read(past.stream.path, position)
            end = start + len(view.bodies)
            # Whoever reads on from its end does what another one of these reads does.
            next_offset = past.ends[end - 1] if view.bodies else past.next_offset
            seen = [each.body for each in content[start:end]]
            if [*view.bodies] != seen or view.next_offset != next_offset:
                yield f"from {position} on {past} reads as {view}"


STORY_RULES: Final[tuple[Callable[[Truth], Iterator[str]], ...]] = (
    nothing_is_born_without_a_reason,
    nothing_dies_without_a_reason,
    nothing_is_served_after_its_time,
    only_what_forks_need_is_called_gone,
    entries_add_up,
    appends_are_as_they_were_sent,
    a_slot_is_bounded,
    a_mismatch_has_a_reason,
    a_sequence_is_rejected_for_a_later_one,
    a_fork_continues_its_source,
    a_fork_at_the_tail_lacks_nothing,
    nothing_is_removed_too_early,
    no_object_goes_too_early,
    only_what_was_forgotten_is_called_trimmed,
    only_what_is_of_another_stream_is_called_stale,
    writers_are_told_offsets_of_their_stream,
)

TABLE_RULES: Final[tuple[Callable[[Left], Iterator[str]], ...]] = (
    chains_have_no_holes,
    segments_hold_what_was_written,
    a_chain_is_named_or_has_a_tombstone,
    every_fork_has_its_edge,
    what_forks_inherit_is_there,
    every_body_is_there,
    every_object_is_known,
)
