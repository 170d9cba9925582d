"""Disks that are really full, and files that may not grow: a clear message, and nothing half-written is visible."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from store_killer import ROOT
from workload_build import SUMMARY, content, difference, in_turn, lake_of, tuples

import nile
from nile.pyramid.lake.lake import LakeStream
from nile.spark import build, ingest
from nile.spark.building.build import build_with
from nile.spark.ingesting.lake_tasks import AsideJob
from nile.summaries.errors import StoreWriteError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

resource = pytest.importorskip("resource", reason="this system has no limit on the size of a file")


@contextmanager
def small_files_only(size: int = 8_192) -> Iterator[None]:
    """Inside, no file of this process may have more bytes: what is past them is refused as by a disk without room."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    path = tmp_path / "tiny"
    path.mkdir()
    try:
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", path], capture_output=True, check=False)
    except OSError as error:
        pytest.skip(f"no disk can be made here: {error}")
    if made.returncode:
        pytest.skip(f"no disk can be made here: {made.stderr.decode().strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def events(path: Path, rows: int) -> Path:
    """Keys that Parquet cannot make small."""
    keys = np.random.default_rng(rows).integers(0, 1 << 60, rows)
    pq.write_table(pa.table({"ts": np.arange(rows), "item": keys}), path)
    return path


def files(root: Path) -> set[str]:
    return {str(file.relative_to(root)) for file in root.rglob("*") if file.is_file()}


def test_a_batch_that_finds_no_room_leaves_the_lake_as_it_was_and_comes_in_later(tmp_path: Path) -> None:
    ts, table = tuples(1, 4_000)
    lake_of(tmp_path / "lake", random.Random(1), ts[:100], table[:100])
    before = files(tmp_path / "lake")
    with small_files_only(), pytest.raises(StoreWriteError) as told:
        lake_of(tmp_path / "lake", random.Random(2), ts[100:], table[100:])
    where, _, said = str(told.value).partition(": ")
    assert Path(where).parent == tmp_path / "lake" / "shop" / "_staging"
    assert said.startswith("needed to write a part of the lake; got: ")
    assert said.endswith("File too large; raise the size that a file may have (ulimit -f), then run it again")
    stream = LakeStream.open(tmp_path / "lake", "shop")
    assert (stream.tuples, stream.verify(deep=True), files(tmp_path / "lake")) == (100, [], before)
    lake_of(tmp_path / "lake", random.Random(2), ts[100:], table[100:])
    stream = LakeStream.open(tmp_path / "lake", "shop")
    assert (stream.tuples, stream.verify(deep=True)) == (4_000, [])


def test_rows_aside_that_find_no_room_say_so(tmp_path: Path) -> None:
    raw = [os.urandom(40).hex() for _ in range(2_000)]
    rows = pa.record_batch({"reason": ["late"] * len(raw), "row": range(len(raw)), "raw": raw})
    with small_files_only(), pytest.raises(StoreWriteError, match=r"needed to write rejected rows; .*ulimit -f"):
        list(AsideJob(str(tmp_path)).write(iter([rows])))


def test_a_build_that_finds_no_room_leaves_the_store_as_it_was_and_is_done_later(tmp_path: Path) -> None:
    ts, table = tuples(3, 6_000)
    lake_of(tmp_path / "lake", random.Random(3), ts[:300], table[:300])
    build_with(in_turn, LakeStream.open(tmp_path / "lake", "shop"), tmp_path / "store", summaries=[SUMMARY])
    before = content(tmp_path / "store")
    lake_of(tmp_path / "lake", random.Random(4), ts[300:], table[300:])
    opened = LakeStream.open(tmp_path / "lake", "shop")
    with small_files_only(16_384), pytest.raises(StoreWriteError) as told:
        build_with(in_turn, opened, tmp_path / "store", summaries=[SUMMARY])
    where, _, said = str(told.value).partition(": ")
    assert Path(where).parent == tmp_path / "store" / "data"
    assert said == (
        "needed to write it; got File too large; what was committed before is intact; raise the size that a file of "
        "this process may have (ulimit -f) and try again"
    )
    assert difference(content(tmp_path / "store"), before) is None
    build_with(in_turn, opened, tmp_path / "store", summaries=[SUMMARY])
    build_with(in_turn, opened, tmp_path / "whole", summaries=[SUMMARY])
    assert difference(content(tmp_path / "store"), content(tmp_path / "whole")) is None


@pytest.mark.spark
@pytest.mark.long
def test_an_ingest_and_a_build_on_a_full_disk_say_so_and_go_on_when_there_is_room(
    spark: SparkSession, tmp_path: Path, tiny: Path
) -> None:
    few, many = events(tmp_path / "few.parquet", 1_000), events(tmp_path / "many.parquet", 100_000)
    given = {"stream": "shop", "time": "ts", "key": "item", "spark": spark}
    ingest(few, tiny / "lake", **given)
    before = files(tiny / "lake")
    with pytest.raises(StoreWriteError) as told:
        ingest(many, tiny / "lake", batch="many", **given)
    where, _, said = str(told.value).partition(": ")
    assert Path(where).parent == tiny / "lake" / "shop" / "_staging"
    assert said == (
        "needed to write a part of the lake; got: [Errno 28] Error writing bytes to file. Detail: [errno 28] No space "
        "left on device; make room or mend the disk, then run it again"
    )
    assert files(tiny / "lake") == before
    assert LakeStream.open(tiny / "lake", "shop").verify(deep=True) == []
    ingest(many, tmp_path / "lake", **given)
    with pytest.raises(StoreWriteError) as told:
        build(tmp_path / "lake", tiny / "store", spark=spark)
    where, _, said = str(told.value).partition(": ")
    assert Path(where).parent == tiny / "store" / "data"
    assert said == (
        "needed to write it; got No space left on device; what was committed before is intact; free some space and try "
        "again"
    )
    with nile.connect(tiny / "store") as db:
        assert db.streams == ()
    assert list((tiny / "store" / "data").iterdir()) == []
    subprocess.run(["mount", "-o", "remount,size=32m", tiny], check=True)
    assert ingest(many, tiny / "lake", batch="many", **given).stream.batches[-1]["in"] == 100_000
    assert build(tmp_path / "lake", tiny / "store", spark=spark).new == 100_000


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.usefixtures("spark")
def test_a_java_that_finds_no_room_says_what_to_raise_and_nothing_is_visible(tmp_path: Path) -> None:
    events(tmp_path / "many.parquet", 300_000)
    code = (
        "import sys; from nile.spark import ingest; from nile.summaries.errors import NileError\n"
        "try: ingest('many.parquet', 'lake', stream='shop', time='ts', key='item')\n"
        "except NileError as error: sys.exit(str(error))"
    )
    limited = ["sh", "-c", 'ulimit -f 1000; exec "$@"', "sh", sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(limited, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert done.stderr.splitlines()[-1] == (
        "stream 'shop': Spark failed: a file would be larger than a process may write; raise the size that a file may "
        "have (ulimit -f), then run it again"
    )
    assert LakeStream.open(tmp_path / "lake", "shop").tuples == 0
