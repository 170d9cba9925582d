"""A store that is built from the lake is, byte for byte, the one that pushing the tuples in order makes."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import nile
from experiments.cli import main
from nile.durable.keeper import Keeper
from nile.spark import build_plan
from nile.spark.build_tasks import Asked, Done, Job, Work
from nile.spark.building import build, build_with
from nile.spark.progress import JobProgress
from pyramid.disk.directory import StoreDirectory
from pyramid.disk.files import Files
from pyramid.history import layout, rows_store
from pyramid.history.history import History
from pyramid.lake import DAY, ORDINAL, LakeStream, Layout, streams_of, write_part
from pyramid.spec import SummarySpec
from summaries.errors import (
    ConfigError,
    SourceError,
    SourceMissing,
    SqlError,
    StoreCorrupt,
    StoreLocked,
    StoreWriteError,
    UnknownColumn,
)

SCHEMA = pa.schema([("item", pa.string()), ("at", pa.timestamp("ns")), ("price", pa.float64()), ("shop", pa.int32())])
SUMMARY = "CREATE SUMMARY items ON shop (item) WITH GRANULARITY '2 h' AND COLLAPSE (3, 3)"
OTHER = "CREATE SUMMARY shops ON shop (shop) WITH GRANULARITY '5 min' AND COLLAPSE (2, 2)"


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ratios of the real sizes of files, for streams of some ten thousand tuples."""
    for name, rows in (("AHEAD", 1_024), ("SMALL", 1_024), ("LARGE", 4_096)):
        monkeypatch.setattr(rows_store, name, rows)
        if hasattr(layout, name):
            monkeypatch.setattr(layout, name, rows)

    def history(self: Keeper, name: str, schema: pa.Schema) -> History:
        return History(name, schema, directory=self.directory, memory=self.memory, segment=512, largest=8_192)

    monkeypatch.setattr(Keeper, "history", history)


def tuples(seed: int, n: int, days: int = 3) -> tuple[np.ndarray[Any, Any], pa.Table]:
    """Times in order, with ties, and the columns of SCHEMA, with nulls and keys that change."""
    draw = np.random.default_rng(seed)
    ts = np.sort(draw.integers(0, days * DAY, n) // 10**9 * 10**9)
    ids = (draw.zipf(1.3, n) % 300 + (ts // (DAY // 2)) * 40).tolist()
    items = [None if i % 29 == 0 else f"item {i}" for i in ids]
    price = pa.array([None if i % 7 == 0 else i / 4 for i in ids], pa.float64())
    columns = [pa.array(items, pa.string()), pa.array(ts, pa.timestamp("ns")), price, pa.array(ids, pa.int32())]
    return ts, pa.Table.from_arrays(columns, schema=SCHEMA)


def lake_of(root: Path, source: random.Random, ts: np.ndarray[Any, Any], table: pa.Table, batches: int = 1) -> None:
    """These tuples, in some commits, go to the end of a lake, the files of a time range cut by ordinal or bucket."""
    if "shop" not in (streams_of(root) if root.exists() else []):
        LakeStream.create(root, Layout("shop", "at", "item", SCHEMA, group_rows=source.choice((100, 1_000))))
    stream = LakeStream.open(root, "shop")
    cuts = [0, *sorted(source.sample(range(1, len(ts)), min(batches, len(ts)) - 1)), len(ts)]
    for begin, end in itertools.pairwise(cuts):
        with stream.writing() as now:
            staged = []
            for day in np.unique(ts[begin:end] // DAY):
                inside = begin + np.flatnonzero(ts[begin:end] // DAY == day)
                pieces = np.array_split(inside, source.randrange(1, 4))
                for piece in pieces:
                    for rows in _by_bucket(piece, source):
                        path = now.staging() / f"{len(staged)}.parquet"
                        part = write_part(path, now.tuples + rows - begin, ts[rows], table.take(pa.array(rows)), "item",
                                          group_rows=now.layout.group_rows)  # fmt: skip
                        staged.append((path, part))
            stream = now.commit(staged, {"id": f"b{now.tuples}"})


def _by_bucket(rows: np.ndarray[Any, Any], source: random.Random) -> Iterator[np.ndarray[Any, Any]]:
    """The rows, or two halves of them that share a range of ordinals, as files of different buckets do."""
    if source.random() < 0.6 or len(rows) < 3:
        if len(rows):
            yield rows
        return
    odd = source.sample(range(len(rows)), len(rows) // 2)
    yield rows[np.sort(odd)]
    yield np.delete(rows, odd)


def pushed(store: Path, lake: Path, summaries: Sequence[str]) -> None:
    """The oracle: one process, a push of all tuples in order."""
    stream = LakeStream.open(lake, "shop")
    table = pa.concat_tables(stream.read([ORDINAL, *SCHEMA.names]))
    table = table.sort_by(ORDINAL).drop_columns([ORDINAL])
    batches = stream.batches
    offset = {"lake": "shop", "tuples": len(table), "batches": len(batches), "last": batches[-1]["id"]}
    db = nile.connect(store, checkpoint=None)
    db.stream("shop", SCHEMA, time="at")
    db._live.get("shop").history.index("item")  # type: ignore[union-attr]
    db.push("shop", table, offset=offset)
    for statement in summaries:
        db.sql(statement)
    db.close()


def content(store: Path) -> dict[str, Any]:
    """All that a store holds, names of files replaced by their bytes."""
    with StoreDirectory.open(store, read_only=True) as directory:
        data = {name: bytes(directory.read(file)) for name, file in directory.files().items()}
        state = json.loads(json.dumps(dict(directory.state)))
        roles = sorted(file.role for file in directory.files().values())

    def told(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: told(one) for key, one in value.items()}
        if isinstance(value, list):
            return [told(one) for one in value]
        return data.get(value, value) if isinstance(value, str) else value

    return {"state": told(state), "roles": roles}


def difference(one: Any, other: Any, where: str = "store") -> str | None:
    """Where two contents first differ, in words."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        pairs = [(one[key], other[key], f"{where}.{key}") for key in one]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = [(a, b, f"{where}[{at}]") for at, (a, b) in enumerate(zip(one, other, strict=True))]
    elif isinstance(one, bytes) and isinstance(other, bytes) and one != other:
        at = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
        return f"{where}: {len(one)} and {len(other)} bytes, from {at} on"
    else:
        return None if one == other else f"{where}: {str(one)[:200]} and {str(other)[:200]}"
    return next((found for a, b, at in pairs if (found := difference(a, b, at)) is not None), None)


def in_disorder(source: random.Random, fail: float = 0.0) -> Any:
    """A runner that does works in any order, some of them twice, and some after attempts that died."""

    def run(_: str, job: Job, works: Sequence[Work]) -> list[list[Done]]:
        done: list[list[Done]] = [[] for _ in works]
        for at in source.sample(range(len(works)), len(works)):
            work = Work.unpacked(works[at].packed())
            while source.random() < fail:
                if source.random() < 0.5:
                    job.do(work)  # a twin that was slower
                else:
                    with pytest.raises(StoreWriteError, match="lost"), _lost_disk():
                        job.do(work)
            done[at] = job.do(work)
        return done

    return run


@contextlib.contextmanager
def _lost_disk() -> Iterator[None]:
    """Inside, nothing can be written."""

    def write(*_: object) -> int:
        raise OSError(5, "lost")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.write", write)
        yield


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(at, marks=pytest.mark.long) for at in range(12, 200))])
def test_any_cut_order_and_retry_of_tasks_gives_the_store_of_one_process(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = random.Random(seed)
    monkeypatch.setattr(build_plan, "ROWS_A_WORK", source.choice((1, 700, 5_000, 10**9)))
    ts, table = tuples(seed, source.choice((1, 255, 512, source.randrange(2, 40_000), source.randrange(2, 40_000))))
    lake_of(tmp_path / "lake", source, ts, table)
    summaries = source.choice(([], [SUMMARY], [SUMMARY, OTHER]))
    done = build_with(in_disorder(source, 0.2), LakeStream.open(tmp_path / "lake", "shop"), tmp_path / "built",
                      summaries=summaries)  # fmt: skip
    assert (done.tuples, done.new) == (len(ts), len(ts))
    pushed(tmp_path / "pushed", tmp_path / "lake", summaries)
    assert difference(content(tmp_path / "built"), content(tmp_path / "pushed")) is None
    assert not [name for name in (tmp_path / "built" / "data").iterdir() if name.suffix == ".tmp"]


@pytest.mark.spark
@pytest.mark.usefixtures("small_files")
def test_spark_builds_the_same_store_and_tells_how_far_it_is(spark: Any, tmp_path: Path) -> None:
    source = random.Random(77)
    ts, table = tuples(77, 20_000)
    lake_of(tmp_path / "lake", source, ts, table)
    told: list[JobProgress] = []
    done = build(tmp_path / "lake", tmp_path / "built", summaries=[SUMMARY], spark=spark, on_progress=told.append)
    assert str(done).startswith("shop: 20,000 tuples (20,000 new, ")
    assert [one.stage for one in told if one.done == 1] == ["writing rows and indices", "counting"]
    pushed(tmp_path / "pushed", tmp_path / "lake", [SUMMARY])
    assert difference(content(tmp_path / "built"), content(tmp_path / "pushed")) is None
    said = CliRunner().invoke(main, ["build", str(tmp_path / "lake"), str(tmp_path / "built"), "--summary", SUMMARY])
    assert said.stdout == "shop: 20,000 tuples (nothing new), indexed by item, summaries items\n"


@pytest.mark.spark
def test_a_part_of_the_lake_that_changed_is_named_and_the_store_stays_as_it_was(spark: Any, tmp_path: Path) -> None:
    source = random.Random(5)
    ts, table = tuples(5, 3_000)
    lake_of(tmp_path / "lake", source, ts, table)
    part = sorted((tmp_path / "lake").rglob("part-*.parquet"))[1]
    data = bytearray(part.read_bytes())
    data[len(data) // 3] ^= 4
    part.write_bytes(data)
    with pytest.raises(StoreCorrupt, match=part.name):
        build(tmp_path / "lake", tmp_path / "store", spark=spark)
    with nile.connect(tmp_path / "store") as db:
        assert db.streams == ()
    assert list((tmp_path / "store" / "data").iterdir()) == []


def in_turn(_: str, job: Job, works: Sequence[Work]) -> list[list[Done]]:
    """A runner that does one work after the other."""
    return [job.do(work) for work in works]


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(at, marks=pytest.mark.long) for at in range(6, 100))])
def test_builds_of_a_lake_that_grows_end_where_one_build_of_all_of_it_does(seed: int, tmp_path: Path) -> None:
    source = random.Random(seed)
    ts, table = tuples(seed, source.randrange(300, 30_000))
    cuts = [*sorted(source.sample(range(1, len(ts)), source.randrange(1, 4))), len(ts)]
    asked: list[str] = []
    for step, end in enumerate(cuts):
        begin = cuts[step - 1] if step else 0
        lake_of(tmp_path / "lake", source, ts[begin:end], table[begin:end], source.randrange(1, 3))
        asked = source.choice((asked, [SUMMARY], [SUMMARY, OTHER])) if len(asked) < 2 else asked
        opened = LakeStream.open(tmp_path / "lake", "shop")
        done = build_with(in_disorder(source), opened, tmp_path / "grown", summaries=asked)
        assert (done.tuples, done.new) == (end, end - begin)
    again = build_with(in_turn, opened, tmp_path / "grown", summaries=asked)
    assert (again.new, again.files, again.epoch) == (0, 0, done.epoch)
    build_with(in_turn, opened, tmp_path / "whole", summaries=asked)
    assert difference(content(tmp_path / "grown"), content(tmp_path / "whole")) is None
    pushed(tmp_path / "pushed", tmp_path / "lake", asked)
    assert difference(content(tmp_path / "grown"), content(tmp_path / "pushed")) is None


def test_a_second_build_reads_and_writes_little_of_what_was_there(tmp_path: Path) -> None:
    schema = pa.schema([("at", pa.int64()), ("key", pa.int64())])
    ts = np.arange(300_000) * 10**9
    table = pa.table([pa.array(ts // 10**9), pa.array(ts % 1_009)], schema=schema)
    stream = LakeStream.create(tmp_path / "lake", Layout("s", "at", "key", schema, range_ns=1 << 60))
    works: list[Work] = []

    def run(stage: str, job: Job, given: Sequence[Work]) -> list[list[Done]]:
        works.extend(given)
        return in_turn(stage, job, given)

    for begin, end in ((0, 270_000), (270_000, 300_000)):
        with stream.writing() as now:
            path, at = now.staging() / "part.parquet", slice(begin, end)
            part = write_part(path, np.arange(begin, end), ts[at], table[at], "key")
            stream = now.commit([(path, part)], {"id": f"b{begin}"})
        works.clear()
        build_with(
            run,
            stream,
            tmp_path / "store",
            summaries=["CREATE SUMMARY k ON s (key) WITH GRANULARITY '1 h' AND COLLAPSE (2, 2)"],
        )
    told = {work.kind: [(run.begin, run.end, run.written) for run in work.runs] for work in works}
    assert told == {"rows": [(262_144, 300_000, True)], "keys": [(262_144, 300_000, False)], "counts": []}
    with nile.connect(tmp_path / "store") as db:
        assert db.sql("SELECT count(*) AS n FROM s WHERE key = 7").fetchall() == [(int((ts % 1_009 == 7).sum()),)]


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(at, marks=pytest.mark.long) for at in range(3, 40))])
def test_a_store_that_was_built_can_be_pushed_to_like_any_other(seed: int, tmp_path: Path) -> None:
    source = random.Random(seed)
    ts, table = tuples(seed, source.randrange(2_000, 20_000))
    cut = source.randrange(1, len(ts))
    lake_of(tmp_path / "lake", source, ts[:cut], table[:cut])
    build_with(in_turn, LakeStream.open(tmp_path / "lake", "shop"), tmp_path / "built", summaries=[SUMMARY])
    pushed(tmp_path / "pushed", tmp_path / "lake", [SUMMARY])
    told = {}
    for name in ("built", "pushed"):
        with nile.connect(tmp_path / name, checkpoint=None) as db:
            query = db.subscribe("SELECT item, count(*) AS n FROM shop GROUP BY item WINDOW 3600")
            db.push("shop", table.slice(cut))
            pair = "SELECT A.item, B.price FROM shop A, shop B WHERE A.item = B.item AND A.shop = 3 AND B.shop < 9"
            told[name] = (
                pa.Table.from_batches(query.poll(), query.schema).to_pylist(),
                sorted(map(str, db.sql("SELECT item, sum(price) AS p FROM shop GROUP BY item").fetchall())),
                len(list(db.sql(pair + " WITH PREFERENCE desc A.item").progress(every=0))[-1].to_arrow()),
                db.summary("items").zones(),
            )
    assert told["built"] == told["pushed"]
    assert difference(content(tmp_path / "built"), content(tmp_path / "pushed")) is None


class _Killed(BaseException):
    pass


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(at, marks=pytest.mark.long) for at in range(5, 150))])
def test_a_build_that_dies_leaves_the_store_at_its_last_generation(seed: int, tmp_path: Path) -> None:
    source = random.Random(seed)
    ts, table = tuples(seed, source.randrange(2_000, 9_000))
    cut = source.randrange(1, len(ts))
    lake_of(tmp_path / "lake", source, ts[:cut], table[:cut])
    build_with(in_turn, LakeStream.open(tmp_path / "lake", "shop"), tmp_path / "store", summaries=[SUMMARY])
    before = content(tmp_path / "store")
    lake_of(tmp_path / "lake", source, ts[cut:], table[cut:])
    opened = LakeStream.open(tmp_path / "lake", "shop")
    left = source.randrange(1, 60)

    def dying(method: str, patch: pytest.MonkeyPatch) -> None:
        real = getattr(Files, method)

        def once(*given: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:  # dead: nothing is done any more, no tidying either
                raise _Killed
            return real(*given)

        patch.setattr(Files, method, once)

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(_Killed):
        for method in ("create", "write", "fsync", "rename", "remove", "sync_directory"):
            dying(method, patch)
        build_with(in_turn, opened, tmp_path / "store", summaries=[SUMMARY])
    build_with(in_turn, opened, tmp_path / "whole", summaries=[SUMMARY])
    after = content(tmp_path / "whole")
    found = content(tmp_path / "store")
    assert difference(found, before) is None or difference(found, after) is None
    build_with(in_turn, opened, tmp_path / "store", summaries=[SUMMARY])
    assert difference(content(tmp_path / "store"), after) is None
    with StoreDirectory.open(tmp_path / "store") as directory:
        named = {*directory.files(), *(directory._previous.files if directory._previous else ())}
    assert {f"data/{file.name}" for file in (tmp_path / "store" / "data").iterdir()} == named


def test_what_cannot_be_built_says_why(tmp_path: Path) -> None:
    source = random.Random(1)
    ts, table = tuples(1, 500)
    with pytest.raises(SourceMissing, match="nile ingest"):
        build(tmp_path / "none", tmp_path / "store")
    (tmp_path / "lake").mkdir()
    with pytest.raises(SourceMissing, match="empty"):
        build(tmp_path / "lake", tmp_path / "store")
    LakeStream.create(tmp_path / "lake", Layout("shop", "at", "item", SCHEMA))
    with pytest.raises(SourceError, match="no tuples yet"):
        build(tmp_path / "lake", tmp_path / "store")
    lake_of(tmp_path / "lake", source, ts[:300], table[:300])
    opened = LakeStream.open(tmp_path / "lake", "shop")

    def refused(kind: type[Exception], match: str, store: str, **given: Any) -> None:
        with pytest.raises(kind, match=match):
            build_with(in_turn, opened, tmp_path / store, **given)

    refused(UnknownColumn, "prise", "store", index=["prise"])
    refused(
        SqlError,
        "prise",
        "store",
        summaries=["CREATE SUMMARY s ON shop (prise) WITH GRANULARITY 60 AND COLLAPSE (2, 2)"],
    )
    refused(ConfigError, "CREATE SUMMARY", "store", summaries=["SHOW STREAMS"])
    with nile.connect(tmp_path / "other") as db:
        db.stream("shop", [("at", pa.float64())], time="at")
        refused(StoreLocked, "only writer", "other")
    refused(ConfigError, "columns item string", "other")
    (tmp_path / "shop.csv").write_text("at,item\n1,tea\n")
    with nile.connect(tmp_path / "file") as db:
        db.register("shop", str(tmp_path / "shop.csv"), time="at")
    refused(ConfigError, "registered source", "file")
    build_with(in_turn, opened, tmp_path / "store", index=["shop"])
    with nile.connect(tmp_path / "store") as db:
        db.subscribe("SELECT item FROM shop", name="all")
    lake_of(tmp_path / "lake", source, ts[300:], table[300:])
    opened = LakeStream.open(tmp_path / "lake", "shop")
    refused(ConfigError, "'all'", "store")
    with nile.connect(tmp_path / "store") as db:
        db.subscription("all").close()
        db.push("shop", table.slice(300, 5))
    refused(ConfigError, "pushed by hand", "store")


def test_a_full_disk_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    source = random.Random(2)
    ts, table = tuples(2, 5_000)
    lake_of(tmp_path / "lake", source, ts, table)
    opened = LakeStream.open(tmp_path / "lake", "shop")

    def write(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with StoreDirectory.open(tmp_path / "store"), pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.write", write)
        job = Job(str(opened.path), str(tmp_path / "store"), 0, SCHEMA)
        work = Work("counts", opened.parts, (), "item", (Asked(SummarySpec(granularity=10**9), 0),))
        with pytest.raises(StoreWriteError, match="free some space"):
            job.do(work)
    assert list((tmp_path / "store" / "data").iterdir()) == []


def test_what_the_driver_holds_does_not_grow_with_rows(tmp_path: Path) -> None:
    peaks = []
    for tuples_a_day in (20_000, 80_000):
        ts = np.sort(np.random.default_rng(3).integers(0, DAY, tuples_a_day))
        schema = pa.schema([("at", pa.timestamp("ns")), ("key", pa.int64())])
        table = pa.table([pa.array(ts, pa.timestamp("ns")), pa.array(ts % 101)], schema=schema)
        root = tmp_path / str(tuples_a_day)
        stream = LakeStream.create(root / "lake", Layout("s", "at", "key", schema))
        with stream.writing() as now:
            path = now.staging() / "part.parquet"
            part = write_part(path, np.arange(len(ts)), ts, table, "key")
            stream = now.commit([(path, part)], {"id": "b"})
        answers: list[list[list[Done]]] = []

        def run(
            stage: str, job: Job, works: Sequence[Work], kept: list[list[list[Done]]] = answers
        ) -> list[list[Done]]:
            tracemalloc.stop()
            kept.append(in_turn(stage, job, works))
            tracemalloc.start()
            return kept[-1]

        summary = "CREATE SUMMARY k ON s (key) WITH GRANULARITY '1 h' AND COLLAPSE (2, 2)"
        tracemalloc.start()
        build_with(run, stream, root / "store", summaries=[summary])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert all(len(json.dumps([asdict(one) for one in done])) < 2_000 for stage in answers for done in stage)
    assert peaks[1] < peaks[0] + 2_000_000
