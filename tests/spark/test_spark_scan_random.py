"""Scans of random lakes: the finished scan is the exact answer, and what is read is a prefix, whatever tasks do."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark_stand_in import StandIn
from workload_scan import workload

import nile
import nile.spark.scan.scan as scan_module
import nile.spark.scan.task as task_module
from nile.answers.result import Result
from nile.pyramid.lake.part import PartFile
from nile.spark import exact_join, tuple_files
from nile.spark.scan.scan import ScanRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Asked = tuple[str, int, int, tuple[int, ...]]


def seeds(normal: int, long: int) -> list[Any]:
    return [*range(normal), *(pytest.param(at, marks=pytest.mark.long) for at in range(normal, long))]


def rows_of(result: Result) -> list[tuple[Any, ...]]:
    """Sorted, without weights, which are 1 at the end."""
    table = result.to_arrow()
    if "_weight" in table.column_names:
        assert set(table["_weight"].to_pylist()) <= {1.0}
        table = table.drop_columns("_weight")
    return sorted(tuple(row.values()) for row in table.to_pylist())


def preferred(seed: int) -> str:
    """Of those that every output meets."""
    return f"WITH PREFERENCE {random.Random(seed).choice(('desc', 'weighted'))} A.item"


@pytest.mark.parametrize("seed", seeds(8, 200))
def test_a_finished_scan_is_the_answer_of_the_exact_engine(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = StandIn(random.Random(seed), fail=0.2)
    monkeypatch.setattr(scan_module, "spark_session", lambda: stand_in)
    given = workload(tmp_path, seed)
    db = given.database()
    exact = given.answer(db.sql(given.pairs).fetchall())
    assert rows_of(db.sql(given.text.format(preferred(seed)), engine="spark")) == exact


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("seed", range(1_000, 1_025))
def test_a_finished_scan_on_spark_is_the_answer_of_the_exact_engine_and_of_sparks_own_join(
    seed: int, spark: SparkSession, tmp_path: Path
) -> None:
    given = workload(tmp_path / "lake", seed)
    db = given.database()
    both = [tuple_files(tmp_path / "lake", name) for name in ("a", "b")]
    found = exact_join(spark, *both, given.window, tmp_path / "pairs")
    pairs = pq.read_table(found.path, columns=["left_ordinal", "right_ordinal"])
    exact = given.answer(zip(*(column.to_pylist() for column in pairs.columns), strict=True))
    assert given.answer(db.sql(given.pairs).fetchall()) == exact
    assert rows_of(db.sql(given.text.format(preferred(seed)), engine="spark")) == exact


def told(db: nile.Database, text: str, **options: Any) -> list[Any]:
    """All that a scan says on its way: after each wave how far it is, and the rows so far."""
    return [
        (len(partial), partial.coverage, partial.estimate, partial.done, partial.to_arrow())
        for partial in db.sql(text, engine="spark", **options).progress(every=0)
    ]


def cells(run: ScanRun, read: int) -> set[Asked]:
    """What the first partitions of a ranking are read from."""
    return {
        (cell.part.name, cell.low, cell.high, cell.groups)
        for each in run.ranking.order[:read]
        for side in each.work.cells
        for cell in side
    }


@pytest.mark.parametrize("seed", seeds(2, 40))
def test_tasks_that_fail_and_run_again_leave_the_same_prefix_and_the_same_partial_answers(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = random.Random(seed)
    given = workload(tmp_path, seed, many=True)
    db = given.database()
    text = given.text.format(f"WITH PREFERENCE {source.choice(('desc', 'asc', 'weighted'))} A.item")
    budget = source.choice((None, 0.6))
    opened: set[Asked] = set()
    real = PartFile.read

    def read(self: PartFile, columns: Any, *which: Any) -> pa.Table:
        if which:  # else it is read for its sketch
            opened.add((self.part.name, *which))
        return real(self, columns, *which)

    monkeypatch.setattr(task_module.PartFile, "read", read)
    runs = []
    for fail in (0.0, 0.5):
        stand_in = StandIn(random.Random(seed), fail, cores=1)
        monkeypatch.setattr(scan_module, "spark_session", lambda one=stand_in: one)
        opened.clear()
        partials = told(db, text, budget=budget)
        result = db.sql(text, engine="spark", budget=budget)
        opened.clear()
        result.to_arrow()
        run = result._run
        assert isinstance(run, ScanRun)
        assert run._waves is not None
        assert opened == cells(run, run._waves.read)
        runs.append((partials, result.to_arrow(), run.ranking.order, run._waves.read, result.accounting))
    assert stand_in.died + stand_in.twins > 0
    assert len(runs[0][0]) > 2
    assert runs[0] == runs[1]
