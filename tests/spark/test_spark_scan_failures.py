"""A scan of the lake when files are broken, and of lakes laid out otherwise."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from spark_stand_in import StandIn
from workload_lake import write_lake

import nile
import nile.spark.scan.scan as scan_module
from nile.pyramid.lake.lake import LakeStream
from nile.summaries.errors import StoreCorrupt

HOUR = 3_600 * 10**9
TEXT = "SELECT A.item, A.at, B.at AS then FROM a A, b B WHERE A.item = B.item {} WINDOW 60"


@pytest.fixture(autouse=True)
def tasks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scans are done in this process, but for the tests that ask for a Spark."""
    if "spark" not in request.fixturenames:
        stand_in = StandIn(random.Random(0))
        monkeypatch.setattr(scan_module, "spark_session", lambda: stand_in)


def make(root: Path, bits: tuple[int, int] = (12, 12), ranges: tuple[int, int] = (3_600, 3_600)) -> nile.Database:
    db = nile.connect()
    for at, name in enumerate("ab"):
        rng = np.random.default_rng(at)
        ts = np.sort(rng.integers(0, 8 * HOUR, 1_500))
        text = np.array([f"item {k}" for k in rng.zipf(1.4, 1_500) % 200])
        write_lake(root, name, ts, {"item": text}, bits=bits[at], range_s=ranges[at])
        db.register(name, root / name)
    return db


def rows_of(db: nile.Database, preference: str = "", **options: object) -> list[tuple[object, ...]]:
    return db.sql(TEXT.format(preference), **options).fetchall()


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_broken_file_is_named_and_what_came_before_stays(tmp_path: Path) -> None:
    db = make(tmp_path)
    whole = db.sql(TEXT.format("WITH PREFERENCE desc A.item"), engine="spark")
    everything = whole.to_arrow()
    last = whole.answer.ranking.order[-1].work.cells[0][0].part
    file = LakeStream.open(tmp_path, "a").path / last.name
    data = bytearray(file.read_bytes())
    data[4 : len(data) // 2] = bytes(len(data) // 2 - 4)
    file.write_bytes(data)
    partials = []
    growing = db.sql(TEXT.format("WITH PREFERENCE desc A.item"), engine="spark").progress(every=0)
    with pytest.raises(StoreCorrupt, match="part-"):
        partials.extend(growing)
    assert all(each.to_arrow() == everything.slice(0, len(each)) for each in partials)


@pytest.mark.parametrize(("bits", "ranges"), [((12, 4), (3_600, 7_200)), ((3, 16), (86_400, 1_800))])
def test_sides_may_be_laid_out_differently(tmp_path: Path, bits: tuple[int, int], ranges: tuple[int, int]) -> None:
    db = make(tmp_path, bits, ranges)
    assert sorted(rows_of(db, "WITH PREFERENCE desc A.item", engine="spark")) == sorted(rows_of(db))


def test_a_stream_meets_itself(tmp_path: Path) -> None:
    db = make(tmp_path)
    text = "SELECT A.at, B.at AS then FROM a A, a B WHERE A.item = B.item AND A.at < B.at {} WINDOW 60"
    mine = db.sql(text.format("WITH PREFERENCE desc A.item"), engine="spark").fetchall()
    assert sorted(mine) == sorted(db.sql(text.format("")).fetchall())


def test_bounds_in_time_leave_out_files(tmp_path: Path) -> None:
    db = make(tmp_path)
    text = (
        "SELECT A.item, A.at, B.at AS then FROM a A, b B WHERE A.item = B.item "
        "AND A.at >= TIMESTAMP '2020-09-13 16:00:00' AND B.at < TIMESTAMP '2020-09-13 19:30:00' {} WINDOW 60"
    )
    result = db.sql(text.format("WITH PREFERENCE desc A.item"), engine="spark")
    exact = db.sql(text.format("")).fetchall()
    assert exact
    assert sorted(result.fetchall()) == sorted(exact)
    parts = {cell.part.name for each in result.answer.ranking.order for cell in each.work.cells[0]}
    assert len(parts) < len(LakeStream.open(tmp_path, "a").parts)


def test_sketches_are_made_once_and_again_when_they_are_altered(tmp_path: Path) -> None:
    db = make(tmp_path)
    first = rows_of(db, "WITH PREFERENCE desc A.item", engine="spark")
    kept = sorted((tmp_path / "a" / "_sketches").iterdir())
    assert len(kept) == len(LakeStream.open(tmp_path, "a").parts)
    before = [file.read_bytes() for file in kept]
    stamps = [file.stat().st_mtime_ns for file in kept]
    data = bytearray(before[0])
    data[len(data) // 2] ^= 4
    kept[0].write_bytes(data)
    assert rows_of(db, "WITH PREFERENCE desc A.item", engine="spark") == first
    assert [file.read_bytes() for file in kept] == before
    assert [file.stat().st_mtime_ns for file in kept][1:] == stamps[1:]
