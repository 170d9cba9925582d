"""Driver and Java killed at random moments while a query fills a store: every row of the files is in it once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from child_spark_sink import differences, file_rows, files_until, in_order, prepared, seen, twin
from store_killer import ROOT, Kills, kill_all_of_it, kill_over_and_over

import nile
from nile.spark.java import find_java
from nile.spark.sink.place import Place
from nile.summaries.errors import JavaMissing

pytestmark = pytest.mark.spark

LONGEST = 4.0  # seconds that a child streams before it is killed, at most: several epochs


@pytest.fixture(autouse=True)
def java() -> None:
    try:
        find_java()
    except JavaMissing as missing:
        pytest.skip(str(missing))


class Twin:
    """A database that is pushed the same files and never stops; it is brought to where the store is."""

    def __init__(self, folder: Path) -> None:
        seen(twin([file_rows(0)]))  # kernels are compiled before anyone may be killed, or they never would be
        self.folder = folder
        self.db = twin([])
        self.epochs = 0
        self.kills = 0
        self.between: set[int] = set()  # epochs that the store had and Spark's own log had not

    def verify(self, _: int) -> int:
        """Compare, and return how many epochs the store has taken."""
        self.kills += 1
        if not (self.folder / "store" / "manifest-1").exists():
            return 0
        with nile.connect(self.folder / "store", checkpoint=None) as kept:
            if "sales" not in kept.streams:
                return 0
            prepared(kept)
            place = Place.of(kept.offset("sales"))
            came = 0 if place is None else place.epoch + place.done
            for epoch in range(self.epochs, came):
                files = [files_until(self.folder / "progress", one) if one >= 0 else 0 for one in (epoch - 1, epoch)]
                rows = pa.concat_tables(file_rows(number) for number in range(*files))
                self.db.push("sales", in_order(rows), offset=0)
            assert differences(seen(kept), seen(self.db)) == []
        if came and not (self.folder / f"progress/commits/{came - 1}").exists():
            self.between.add(came - 1)
        self.epochs = came
        return came

    def kill(self, count: int, seed: int, *more: str, early: float) -> Kills:
        """SIGKILLs of a driver and its Java, until so many of them came after progress."""
        (self.folder / "tmp").mkdir()
        child = [sys.executable, ROOT / "tests/harness/child_spark_sink.py", self.folder, *more]
        command = ["env", f"TMPDIR={self.folder / 'tmp'}", *child]
        return kill_over_and_over(command, self.verify, count, seed, longest=LONGEST, early=early, kill=kill_all_of_it)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_a_driver_killed_at_ten_points_has_lost_and_doubled_nothing(
    tmp_path: Path, record_property: Callable[[str, object], None], seed: int
) -> None:
    """Together fifty; each seed is a store of its own, so that they can be run one at a time."""
    one = Twin(tmp_path)
    done = one.kill(10, seed, early=0.1)
    record_property("kills", f"{done}, {len(one.between)} of them between the store's commit and Spark's own")
    assert done.counted == 10


@pytest.mark.long
def test_a_sink_that_does_not_look_at_epochs_is_found_by_the_same_kills(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    one = Twin(tmp_path)
    with pytest.raises(AssertionError, match=r"== \[\]"):
        one.kill(20, 5, "careless", early=0.1)
    record_property("kills", f"found by kill {one.kills}")
    assert one.between  # what was found is an epoch that came again
