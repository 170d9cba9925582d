"""A store that is built from the lake is, byte for byte, the one that pushing the tuples in order makes."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from workload_build import (
    OTHER,
    SCHEMA,
    SUMMARY,
    content,
    difference,
    in_disorder,
    in_turn,
    lake_of,
    pushed,
    small_files,  # noqa: F401 (a fixture)
    tuples,
)

import nile
from nile.experiments.cli import main
from nile.pyramid.disk.directory import StoreDirectory
from nile.pyramid.grid.spec import SummarySpec
from nile.pyramid.lake.lake import DAY, LakeStream, Layout, write_part
from nile.spark.building import plan as build_plan
from nile.spark.building.build import build, build_with
from nile.spark.building.tasks import Asked, Done, Job, Work
from nile.spark.progress import JobProgress
from nile.summaries.errors import (
    ConfigError,
    SourceError,
    SourceMissing,
    SqlError,
    StoreCorrupt,
    StoreLocked,
    StoreWriteError,
    UnknownColumn,
)


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(at, marks=pytest.mark.long) for at in range(6, 200))])
def test_any_cut_order_and_retry_of_tasks_gives_the_store_of_one_process(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = random.Random(seed)
    monkeypatch.setattr(build_plan, "ROWS_A_WORK", source.choice((1, 700, 5_000, 10**9)))
    ts, table = tuples(seed, source.choice((1, 255, 512, source.randrange(2, 40_000), source.randrange(2, 40_000))))
    lake_of(tmp_path / "lake", source, ts, table)
    summaries = source.choice(([], [SUMMARY], [SUMMARY, OTHER]))
    slots = source.choice((1, 2, 7, 100))
    runner = in_disorder(source, 0.2)
    asked: dict[str, int] = {}

    def run(stage: str, job: Job, works: Sequence[Work]) -> list[list[Done]]:
        asked[stage] = len(works)
        return runner(stage, job, works)

    lake = LakeStream.open(tmp_path / "lake", "shop")
    done = build_with(run, lake, tmp_path / "built", summaries=summaries, slots=lambda: slots)
    assert asked.get("counting", 0) == len(summaries) * min(2 * slots, len(lake.parts))
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
    with pytest.raises(StoreCorrupt) as told:
        build(tmp_path / "lake", tmp_path / "store", spark=spark)
    assert str(told.value) == (
        f"{part}: needed column 'item' of row group 0 as it was written; got other bytes; it changed since it was "
        "written: copy it back, or build the lake again"
    )
    with nile.connect(tmp_path / "store") as db:
        assert db.streams == ()
    assert list((tmp_path / "store" / "data").iterdir()) == []


def test_what_cannot_be_built_says_why(tmp_path: Path) -> None:
    source = random.Random(1)
    ts, table = tuples(1, 500)
    lake = tmp_path / "lake"

    def unbuilt(kind: type[Exception], said: str, where: Path = lake, stream: str | None = None) -> None:
        with pytest.raises(kind) as told:
            build(where, tmp_path / "store", stream=stream)
        assert str(told.value) == f"{where}: {said}"
        assert not (tmp_path / "store").exists()

    none = "needed a lake; there is no such directory; `nile ingest` makes one"
    unbuilt(SourceMissing, none, tmp_path / "none")
    lake.mkdir()
    unbuilt(SourceMissing, "needed a lake with a stream; it is empty; `nile ingest` adds one")
    gone = "it has no stream yet: the lake is empty; `nile ingest` adds one"
    unbuilt(SourceMissing, f"needed a lake with the stream 'web'; {gone}", stream="web")
    LakeStream.create(lake, Layout("shop", "at", "item", SCHEMA))
    unbuilt(SourceError, "needed a stream with tuples; 'shop' has no tuples yet; `nile ingest` adds some")
    unbuilt(SourceMissing, "needed a lake with the stream 'web'; it has 'shop'; `nile ingest` adds one", stream="web")
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
