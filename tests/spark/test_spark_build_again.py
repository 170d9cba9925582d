"""Builds of a lake that grows, builds that die, and stores that were built and live on."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from workload_build import (
    OTHER,
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
from nile.pyramid.disk.directory import StoreDirectory
from nile.pyramid.disk.files import Files
from nile.pyramid.lake.lake import LakeStream, Layout, write_part
from nile.spark.building.build import build_with
from nile.spark.building.tasks import Done, Job, Work


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
