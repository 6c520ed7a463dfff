"""The audit: it finds each fault that is planted, nothing else, and changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import orjson
import pytest
from pyspark.sql import SparkSession

from devtools.processes import ROOT
from glue_jobs import audit
from glue_jobs.audit import Checked, Found, Report
from glue_jobs.auditing.checks import CHECKS
from glue_jobs.auditing.entries import BLOCK, links
from tailrace.clock import system_clock
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.log.retention import Keep
from tailrace.store.dynamodb import actions, layout, retention
from tailrace.store.dynamodb.layout import binary, number, text
from tests.integration.glue.earlier import store_earlier
from tests.integration.glue.lab import BYTES, DAY, JSON, TEXT, Lab
from tests.support import archiving
from tests.support.archiving import Most

GRACE: Final = DAY // 1000


class Site:
    """A stream that a fault is planted in."""

    def __init__(self, lab: Lab, path: str) -> None:
        self.lab = lab
        self.path = path
        self.chain = self.branch = 0
        self.gone: list[dict[str, Any]] = []
        """Entries that were let go."""

    # Making

    async def hot(self, kind: str = TEXT) -> Site:
        """Ten entries, all of them in the table alone."""
        await self.lab.streams.create(self.path, Create(content_type=kind))
        for i in range(10):
            await self.lab.streams.append(self.path, Append(b"%04d" % (1000 + i), kind))
        self.chain = (await self.lab.streams.find(self.path)).stream.id
        return self

    async def both(self, kind: str = TEXT) -> Site:
        """Slots 0 to 7 in two segments, and still in the table."""
        await self.hot(kind)
        await self._archive()
        return self

    async def cold(self, kind: str = TEXT) -> Site:
        """Slots 0 to 7 in two segments, slots 8 and 9 in the table."""
        await self.both(kind)
        self.gone = [await self.table.get(self.slot(n)) for n in range(8)]
        assert await archiving.trim(self.table, self.path, system_clock() + DAY, GRACE) == 8
        return self

    async def fork(self) -> None:
        """At slot 5."""
        path = f"{self.path}/fork"
        await self.lab.fork(path, self.path, 5)
        await self.lab.streams.append(path, Append(b"own", TEXT))
        self.branch = (await self.lab.streams.find(path)).stream.id

    async def messages(self) -> Site:
        return await self.hot(JSON)

    async def shared(self, kind: str = TEXT) -> Site:
        """Ten slots, each of which two appends share."""
        await self.lab.streams.create(self.path, Create(content_type=kind))
        for i in range(10):
            pair = [Append(b"%04d" % (1000 + i), kind), Append(b"5", kind)]
            await asyncio.gather(*(self.lab.streams.append(self.path, each) for each in pair))
        self.chain = (await self.lab.streams.find(self.path)).stream.id
        return self

    async def shared_messages(self) -> Site:
        """Such slots of JSON, of which 0 to 7 are in two segments, and still in the table."""
        await self.shared(JSON)
        await self._archive()
        return self

    async def large(self) -> Site:
        """An entry whose body is an object."""
        await self.hot()
        await self.lab.streams.append(self.path, Append(b"x" * 2000, TEXT))
        return self

    async def _archive(self) -> None:
        stream = (await self.lab.streams.find(self.path)).stream
        while await archiving.archive(self.table, self.lab.bucket, stream, Most(4), system_clock()):
            pass

    # Breaking

    @property
    def table(self) -> Any:
        return self.lab.store._table

    @property
    def name(self) -> layout.Key:
        return layout.name_key(self.path)

    def slot(self, n: int) -> layout.Key:
        return layout.slot_key(self.chain, n)

    async def item(self, n: int) -> dict[str, Any]:
        return dict(await self.table.get(self.slot(n)))

    async def manifest(self, first: int) -> dict[str, Any]:
        return dict(await self.table.get(layout.segment_key(self.chain, first)))

    async def remove(self, *keys: layout.Key) -> None:
        for key in keys:
            assert await self.table.get(key) is not None
            await self.table.delete(key)

    async def put(self, *items: Mapping[str, Any]) -> None:
        await self.table.transact([{"Put": {"Item": dict(item)}} for item in items])

    async def change(self, key: layout.Key, **values: Any) -> None:
        """None removes an attribute."""
        item = {**await self.table.get(key), **values}
        await self.put({name: value for name, value in item.items() if value is not None})

    async def shift(self, key: layout.Key, attribute: str, by: int) -> None:
        item = await self.table.get(key)
        await self.change(key, **{attribute: number(int(item[attribute]["N"]) + by)})

    def overwrite(self, key: str, body: bytes | None) -> None:
        import boto3

        s3, where = boto3.client("s3"), {"Bucket": self.lab.settings.bucket, "Key": key}
        if body is None:
            s3.delete_object(**where)
        else:
            s3.put_object(**where, Body=body)


Act = Callable[[Site], Awaitable[Any]]
Expected = tuple[str, int | None, str]
"""Check, slot, and a part of the sentence."""


class Fault(NamedTuple):
    prepare: Act
    plant: Act
    found: Mapping[str, Sequence[Expected]]
    """The findings for the stream (`own`), of its fork, and of a chain without a name."""


FAULTS: Final[dict[str, Fault]] = {}


def fault(prepare: Act, *own: Expected, **others: Expected) -> Callable[[Act], Act]:
    def note(plant: Act) -> Act:
        found = {name: [expected] for name, expected in others.items()}
        FAULTS[plant.__name__] = Fault(prepare, plant, found | ({"own": own} if own else {}))
        return plant

    return note


async def closed(site: Site) -> None:
    await site.hot()
    await site.lab.streams.append(site.path, Append(b"", close=True))


async def forked(site: Site) -> None:
    await site.hot()
    await site.fork()


async def soft_deleted(site: Site) -> None:
    await forked(site)
    await site.lab.streams.delete(site.path)


# In the table


@fault(Site.hot, ("slots", 4, "slot 3 is neither in the table nor in a segment"))
async def a_slot_is_missing(site: Site) -> None:
    await site.remove(site.slot(3))


@fault(Site.hot, ("slots", 9, "the size after it is 41, not 40"))
async def a_size_does_not_fit_the_body(site: Site) -> None:
    await site.shift(site.slot(9), "z", 1)


@fault(Site.hot, ("slots", 9, "the offset after it is 39, not 40"))
async def an_offset_does_not_fit_the_body(site: Site) -> None:
    await site.shift(site.slot(9), "o", -1)


@fault(Site.messages, ("slots", 9, "the offset after it is 9, not more than 9"))
async def messages_do_not_move_the_offset(site: Site) -> None:
    await site.shift(site.slot(9), "o", -1)


@fault(Site.shared, ("slots", 9, "its appends have 6 bytes, but its body has 5"))
async def appends_are_longer_than_their_body(site: Site) -> None:
    await site.change(site.slot(9), m=text("[[4,4],[2,1]]"))


@fault(Site.shared, ("slots", 3, "append 1 of it has 4 bytes, but moves the offset by 3"))
async def an_append_does_not_move_the_offset_by_its_length(site: Site) -> None:
    await site.change(site.slot(3), m=text("[[4,3],[1,2]]"))


@fault(Site.shared, ("slots", 3, "append 2 of it has 0 bytes, but moves the offset by 0"))
async def an_append_is_empty(site: Site) -> None:
    await site.change(site.slot(3), m=text("[[5,5],[0,0]]"))


@fault(Site.shared_messages, ("slots", 9, "the offset after it is 20, not 21"))
async def appends_have_more_messages_than_the_offset_says(site: Site) -> None:
    await site.change(site.slot(9), m=text("[[4,1],[1,2]]"))


@fault(Site.hot, ("slots", 9, "ms older than slot 8"))
async def time_falls(site: Site) -> None:
    await site.shift(site.slot(9), "a", -60_000)


@fault(Site.hot, ("slots", 9, "it has no data, and neither closes nor deletes the stream"))
async def an_entry_is_empty(site: Site) -> None:
    await site.change(site.slot(9), b=None, z=number(36), o=number(36))


@fault(Site.hot, ("slots", 9, "cannot be read (KeyError('o'))"))
async def an_entry_has_no_offset(site: Site) -> None:
    await site.change(site.slot(9), o=None)


@fault(closed, ("slots", 11, "it comes after slot 10, a closed stream's last"))
async def an_entry_comes_after_the_end(site: Site) -> None:
    more = {"b": binary(b"y"), "z": number(41), "o": number(41)}
    await site.put({**await site.item(10), **site.slot(11), **more})


@fault(soft_deleted, ("slots", 11, "it comes after the tombstone in slot 10"))
async def an_entry_comes_after_a_tombstone(site: Site) -> None:
    more = {"a": number(system_clock() + 1000), "z": number(44), "o": number(44)}
    await site.put({**await site.item(9), **site.slot(11), **more})


@fault(Site.hot, ("slots", None, "'1' in C"))
async def a_key_is_no_slot(site: Site) -> None:
    await site.put({**await site.item(1), "s": text("1")})


@fault(Site.hot, ("beginnings", 1, "slot 0 is neither in the table nor in a segment"))
async def the_first_slot_is_missing(site: Site) -> None:
    await site.remove(site.slot(0))


@fault(Site.cold, ("beginnings", 9, "slot 8 is neither in the table nor in a segment"))
async def the_slot_after_the_segments_is_missing(site: Site) -> None:
    await site.remove(site.slot(8))


@fault(Site.cold, ("beginnings", 8, "the last entry is not in the table"))
async def the_last_entry_is_missing(site: Site) -> None:
    await site.remove(site.slot(8), site.slot(9))


@fault(Site.cold, ("beginnings", 3, "in the table again: all slots before 8 were let go"))
async def a_slot_was_filled_after_it_was_let_go(site: Site) -> None:
    await site.put(site.gone[3])


@fault(forked, fork=("beginnings", 2, "before slot 5, where its chain begins"))
async def a_fork_has_a_slot_of_its_source(site: Site) -> None:
    await site.put({**await site.item(2), **layout.slot_key(site.branch, 2)})


@fault(Site.cold, ("pointers", 9, "were exported, but archived are those before 8"))
async def more_was_exported_than_archived(site: Site) -> None:
    await site.change(site.name, exported_to=number(9))


@fault(forked, fork=("pointers", 3, "but the chain begins at 5"))
async def retention_was_before_the_beginning(site: Site) -> None:
    await site.change(layout.name_key(f"{site.path}/fork"), retained_from=number(3))


@fault(soft_deleted, ("tombstones", 10, "this is no tombstone"))
async def a_tombstone_is_missing(site: Site) -> None:
    await site.remove(site.slot(10))


@fault(soft_deleted, ("tombstones", 10, "the stream still has its name"))
async def a_deleted_stream_has_its_name(site: Site) -> None:
    await site.change(site.name, tombstone_slot=None)


# In segments


@fault(Site.cold, ("manifests", 4, "a segment begins here, not at slot 0"))
async def the_first_segment_is_missing(site: Site) -> None:
    await site.remove(layout.segment_key(site.chain, 0))


@fault(Site.cold, ("manifests", 4, "but for the name they do at slot 8"))
async def the_last_segment_is_missing(site: Site) -> None:
    await site.remove(layout.segment_key(site.chain, 4))


@fault(Site.both, ("manifests", 8, "but for the name they do at slot 4"))
async def a_segment_was_committed_without_its_name(site: Site) -> None:
    await site.change(site.name, archived_to=number(4))


@fault(
    Site.cold,
    ("manifests", 4, "a segment of 4 slots and 15 bytes stores 16 bytes"),
    ("segments", 4, "the size before it is 16, but 17 in its manifest"),
)
async def a_manifest_begins_elsewhere(site: Site) -> None:
    await site.shift(layout.segment_key(site.chain, 4), "start_size", 1)


@fault(Site.cold, ("seams", 8, "the size after it is 37, not 36"))
async def what_follows_a_segment_begins_elsewhere(site: Site) -> None:
    for n in (8, 9):
        await site.shift(site.slot(n), "z", 1)


@fault(Site.both, ("seams", 5, "its checksum is"))
async def a_body_is_another_in_its_segment(site: Site) -> None:
    await site.change(site.slot(5), b=binary(b"abcd"))


@fault(Site.shared_messages, ("seams", 5, "its checksum is"))
async def appends_begin_elsewhere_in_their_segment(site: Site) -> None:
    await site.change(site.slot(5), m=text("[[1,1],[4,1]]"))


@fault(
    Site.shared_messages,
    ("manifests", 0, "a segment of 4 slots and 20 bytes moves the offset by 8"),
    ("objects", 0, "bytes, not"),
    ("segments", 0, "the length of its data is 27, but 28 in its manifest"),
)
async def a_manifest_has_more_bytes_than_its_messages_need(site: Site) -> None:
    await site.shift(layout.segment_key(site.chain, 0), "data_bytes", 1)


@fault(Site.large, ("objects", 10, "is not there"))
async def a_large_body_is_missing(site: Site) -> None:
    site.overwrite((await site.item(10))["k"]["S"], None)


@fault(Site.large, ("objects", 10, "has 3 bytes, not 2000"))
async def a_large_body_is_cut(site: Site) -> None:
    site.overwrite((await site.item(10))["k"]["S"], b"xxx")


@fault(Site.both, ("objects", 4, "is not there"))
async def a_segment_has_no_object(site: Site) -> None:
    site.overwrite((await site.manifest(4))["object_key"]["S"], None)


@fault(Site.cold, ("segments", 4, "its data is damaged"))
async def a_byte_of_a_segment_is_damaged(site: Site) -> None:
    key = (await site.manifest(4))["object_key"]["S"]
    damaged = bytearray(await site.lab.bucket.get(key))
    damaged[3] ^= 1
    site.overwrite(key, bytes(damaged))


@fault(Site.cold, ("segments", 4, "the checksum of its index is"))
async def a_segment_is_not_the_one_that_was_committed(site: Site) -> None:
    await site.shift(layout.segment_key(site.chain, 4), "index_checksum", 1)


@fault(Site.large, ("claims", 10, "is claimed as if nothing named it"))
async def a_body_in_use_is_claimed(site: Site) -> None:
    key = (await site.item(10))["k"]["S"]
    await site.table.transact([actions.put_upload_intent(key, system_clock() + DAY)])


@fault(Site.cold, ("claims", 4, "is claimed as if nothing named it"))
async def a_segment_in_use_is_claimed(site: Site) -> None:
    key = (await site.manifest(4))["object_key"]["S"]
    await site.table.transact([actions.put_upload_intent(key, system_clock() + DAY)])


# Between streams


@fault(
    forked,
    fork=("forks", 0, "which has no name"),
    chain=("orphans", None, "the chain has no name"),
)
async def the_source_of_a_fork_has_no_name(site: Site) -> None:
    await site.remove(site.name)


@fault(forked, fork=("forks", 0, "which ends at 4"))
async def the_source_of_a_fork_is_too_short(site: Site) -> None:
    await site.remove(*(site.slot(n) for n in range(4, 10)))


@fault(
    forked,
    ("edges", None, "its name counts 1 forks, but it has 0 edges"),
    fork=("edges", None, "has no edge to it"),
)
async def an_edge_is_missing(site: Site) -> None:
    await site.remove(layout.edge_key(site.chain, site.branch))


@fault(
    Site.hot,
    ("edges", None, "which is no fork of it"),
    ("edges", None, "its name counts 0 forks, but it has 1 edges"),
)
async def an_edge_leads_nowhere(site: Site) -> None:
    await site.put(layout.edge_key(site.chain, 1))


@fault(forked, ("edges", None, "its name counts 2 forks, but it has 1 edges"))
async def forks_are_miscounted(site: Site) -> None:
    await site.change(site.name, fork_count=number(2))


@fault(Site.hot, ("twins", None, "stands for the same chain"))
async def two_names_share_a_chain(site: Site) -> None:
    await site.put({**await site.table.get(site.name), **layout.name_key(f"{site.path}/twin")})


@fault(Site.hot, ("orphans", None, "is no chain"))
async def a_chain_is_none(site: Site) -> None:
    await site.put({**await site.item(0), "p": text(f"C{site.path}")})


@fault(Site.hot, chain=("orphans", None, "the chain has no name"))
async def a_chain_has_no_name(site: Site) -> None:
    await site.remove(site.name)


# The audit


class Audited(NamedTuple):
    code: int
    report: dict[str, Any]
    sites: dict[str, Site]
    changed: bool
    """Whether table or bucket are not as they were before."""


@pytest.fixture(scope="module")
def audited(spark: SparkSession) -> Audited:
    return asyncio.run(_audited(spark))


async def _audited(spark: SparkSession) -> Audited:
    async with Lab.over(spark) as lab:
        await healthy(lab)
        sites = {name: Site(lab, name) for name in FAULTS}
        await asyncio.gather(*(each.prepare(sites[name]) for name, each in FAULTS.items()))
        for name, each in FAULTS.items():
            await each.plant(sites[name])
        before = await lab.items(), lab.objects()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(audit, "MAX_SHOWN", len(FAULTS) * 3)
            code, output = await run(lab, "--json", "true")
        changed = (await lab.items(), lab.objects()) != before
        return Audited(code, orjson.loads(output), sites, changed)


async def healthy(lab: Lab) -> None:
    """Streams of all kinds that nothing is wrong with."""
    for path, kind in {"json": JSON, "text": TEXT, "bytes": BYTES}.items():
        await lab.fill(path, kind, 18, by="writer", together=3)
        stream = (await lab.streams.find(path)).stream
        assert await archiving.archive(
            lab.store._table, lab.bucket, stream, Most(4), system_clock()
        )
    assert await archiving.trim(lab.store._table, "json", system_clock() + DAY, GRACE)
    await lab.fork("json/fork", "json", 6)
    await lab.fork("json/fork/fork", "json/fork", 3)
    await lab.fork("text/within", "text", 4, 2)
    await lab.streams.append("text/within", Append(b"more", TEXT, close=True))
    await lab.streams.delete("json/fork")
    await lab.streams.append("bytes", Append(b"", close=True))
    await lab.streams.create("empty", Create(content_type=TEXT))
    await apply_retention(lab)
    await lab.fill("deleted", TEXT, 5)
    await lab.streams.delete("deleted")
    await store_earlier(lab.store._table, lab.bucket, "earlier")


async def apply_retention(lab: Lab) -> None:
    """Streams that retention has left one slot of; of the second nothing else is gone yet."""
    table, later = lab.store._table, system_clock() + 3 * DAY
    for site in (await Site(lab, "retained").both(), await Site(lab, "given-up").both()):
        name = await archiving.name_of(table, site.path)
        assert name is not None
        plan = await retention.plan(table, lab.bucket, name, Keep(DAY, None), later, GRACE)
        assert plan is not None
        assert plan.first == 9
        if site.path == "given-up":
            assert await retention._advance_beginning(table, plan)
            continue
        await retention.carry_out(table, plan, later)
        stream = (await lab.streams.find(site.path)).stream
        for _ in range(5):
            await lab.streams.append(site.path, Append(b"after", TEXT))
        assert await archiving.archive(table, lab.bucket, stream, Most(4), system_clock())


async def run(lab: Lab, *flags: str) -> tuple[int, str]:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        code = await asyncio.to_thread(audit.main, [*lab.flags, *flags])
    return code, output.getvalue()


@pytest.mark.parametrize("name", FAULTS)
def test_exactly_the_planted_fault_is_found(audited: Audited, name: str) -> None:
    site = audited.sites[name]
    streams = {"own": name, "fork": f"{name}/fork", "chain": f"{site.chain:016x}"}
    for kind, stream in streams.items():
        found = [each for each in audited.report["found"] if each["stream"] == stream]
        expected = FAULTS[name].found.get(kind, ())
        told = [(each["check"], each["slot"]) for each in found]
        assert told == [(check, slot) for check, slot, _ in expected], found
        for each, (_, _, sentence) in zip(found, expected, strict=True):
            assert sentence in each["what"]
            assert each["fix"].endswith(".")


def test_the_report_lists_and_counts_problems_only(audited: Audited) -> None:
    report = audited.report
    planted = [each for fault in FAULTS.values() for some in fault.found.values() for each in some]
    assert len(report["found"]) == report["problems"] + report["warnings"] == len(planted)
    counts = {each["check"]: each["problems"] for each in report["checks"]}
    assert counts == {check.name: [p[0] for p in planted].count(check.name) for check in CHECKS}
    assert all(counts.values()), "each check has a fault"
    assert all(each["looked"] for each in report["checks"]), "each has something to look at"
    assert (audited.code, report["ok"]) == (1, False)
    assert report["warnings"] == counts["orphans"]


def test_problems_beyond_the_limit_are_counted() -> None:
    checked = [Checked("slots", "All is well.", 1_200, 1_000, False)]
    checked.append(Checked("orphans", "None.", 7, 2, True))
    report = Report(checked, [Found("slots", "a", None, "it is wrong", "Right it.")])
    lines = str(report).splitlines()
    assert lines[2].split() == ["slots", "1,200", "1,000", "All", "is", "well."]
    assert " ".join(lines[7].split()) == "slots a - it is wrong Right it."
    assert lines[-3:] == ["and 1,001 more", "", "1,000 problems, 2 warnings"]
    assert report.metrics == {"history_problems_num": 1_000}


@pytest.mark.parametrize("problems", [0, 1])
def test_a_run_prints_its_report_and_fails_only_for_problems(
    problems: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = [Checked("slots", "", 9, problems, False), Checked("orphans", "", 9, 3, True)]
    published: list[Mapping[str, float]] = []
    job = SimpleNamespace(arguments=SimpleNamespace(json=False), publish=published.append)
    monkeypatch.setattr(audit, "start_job", lambda *_: contextlib.nullcontext(job))
    monkeypatch.setattr(audit, "run", lambda _: Report(checks, []))
    assert audit.main([]) == problems
    assert capsys.readouterr().out.endswith(f"{problems} problems, 3 warnings\n")
    assert published == [{"history_problems_num": problems}]


def test_the_page_has_every_check_and_every_field_of_the_report(audited: Audited) -> None:
    page = (ROOT / "docs" / "history.md").read_text()
    missing = [check.name for check in CHECKS if f"| `{check.name}` |" not in page]
    report = audited.report
    fields = {*report, *report["checks"][0], *report["found"][0]}
    assert not missing + [field for field in fields if f"`{field}`" not in page]


def test_it_only_reads(audited: Audited) -> None:
    assert not audited.changed


def test_slots_are_compared_where_blocks_meet(spark: SparkSession) -> None:
    kind = (
        "chain string, path string, n long, offset long, size long, at long, end long, gone boolean"
    )
    slots = [*range(BLOCK - 2, BLOCK + 2), 2 * BLOCK, 2 * BLOCK + 1]
    rows = [("c", "p", n, n, n, n, None, False) for n in slots]
    found = links(spark.createDataFrame(rows, kind)).sort("n").collect()
    before = {row.n: None if row.before is None else row.before.n for row in found}
    assert before == {
        BLOCK - 2: None,
        BLOCK - 1: BLOCK - 2,
        BLOCK: BLOCK - 1,
        BLOCK + 1: BLOCK,
        2 * BLOCK: None,
        2 * BLOCK + 1: 2 * BLOCK,
    }
