"""Driver and Java killed at random moments while a query fills a store: every row of the files is in it once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from spark_sink_child import differences, file_rows, files_until, in_order, prepared, seen, twin
from store_killer import ROOT, Kills, kill_all_of_it, kill_over_and_over

import nile
from nile.spark.java import find_java
from nile.spark.sink_place import Place
from summaries.errors import JavaMissing

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def java() -> None:
    try:
        find_java()
    except JavaMissing as missing:
        pytest.skip(str(missing))


class Twins:
    """Databases that are pushed the same files and never stop; each is brought to where its store is.

    points: how often a query was killed that had come further since it was killed before.
    """

    def __init__(self, folder: Path, queries: int) -> None:
        self.folder = folder
        self.dbs = [twin([]) for _ in range(queries)]
        self.epochs = [0] * queries
        self.points = 0

    def verify(self, _: int) -> int:
        """Compare, and return how many epochs the stores have taken."""
        for pipe in range(len(self.dbs)):
            came = self._verify(pipe, self.folder / str(pipe) / "store")
            self.points += came > self.epochs[pipe]
            self.epochs[pipe] = came
        return sum(self.epochs)

    def _verify(self, pipe: int, path: Path) -> int:
        if not (path / "manifest-1").exists():
            return 0
        with nile.connect(path, checkpoint=None) as kept:
            if "sales" not in kept.streams:
                return 0
            prepared(kept)
            place = Place.of(kept.offset("sales"))
            came = 0 if place is None else place.epoch + place.done
            for epoch in range(self.epochs[pipe], came):
                files = [files_until(path.parent / "progress", one) if one >= 0 else 0 for one in (epoch - 1, epoch)]
                rows = pa.concat_tables(file_rows(number) for number in range(*files))
                self.dbs[pipe].push("sales", in_order(rows), offset=0)
            assert differences(seen(kept), seen(self.dbs[pipe])) == []
        return came


def kills(
    folder: Path, count: int, seed: int, *more: str, queries: int, longest: float, early: float
) -> tuple[Kills, int]:
    """The kills, and the points of `Twins`."""
    (folder / "tmp").mkdir()
    command = ["env", f"TMPDIR={folder / 'tmp'}", sys.executable, ROOT / "tests/spark_sink_child.py", folder]
    command += [str(queries), *more]
    twins = Twins(folder, queries)
    done = kill_over_and_over(command, twins.verify, count, seed, longest=longest, early=early, kill=kill_all_of_it)
    return done, twins.points


@pytest.mark.long
def test_a_driver_killed_twice_has_lost_and_doubled_nothing(tmp_path: Path) -> None:
    done, points = kills(tmp_path, 2, 1, queries=1, longest=4.0, early=0.0)
    assert done.counted >= 2
    assert points >= 2


@pytest.mark.long
def test_queries_killed_at_fifty_points_have_lost_and_doubled_nothing(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    done, points = kills(tmp_path, 9, 2, queries=10, longest=40.0, early=0.1)
    record_property("kills", f"{done}, {points} points")
    assert points >= 50
    assert done.late > 0


@pytest.mark.long
def test_a_sink_that_does_not_look_at_epochs_is_found_by_the_same_kills(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"== \[\]"):
        kills(tmp_path, 9, 3, "careless", queries=10, longest=20.0, early=0.0)
