"""Schema drift, column types, cutting by time, and what a failed job says: all that needs no Spark to run."""

from __future__ import annotations

import errno
import random
import socket
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from nile.spark import ingest
from nile.spark.failure import needed_packages, sentence, spark_failures
from nile.spark.ingesting.drift import check_rules, drift_of, parse_type, plain_schema, widens
from nile.spark.masters import check_master
from nile.spark.progress import JobProgress, tasks_done
from nile.spark.slices import Stretch, cut_sql, stretches
from nile.summaries.errors import ConfigError, SchemaDrift, SourceError, SparkFailed, StoreWriteError

STREAM = pa.schema([("ts", pa.timestamp("us")), ("item", pa.string()), ("n", pa.int64())])


def test_the_same_columns_are_no_drift_whatever_their_layout() -> None:
    same = pa.schema(
        [("ts", pa.timestamp("ms")), ("item", pa.dictionary(pa.int8(), pa.large_string())), ("n", pa.uint32())]
    )
    drift = drift_of(STREAM, same)
    assert not any((drift.added, drift.dropped, drift.retyped, drift.reordered))
    drift.check({}, where="here", needed=("ts", "item"))
    assert plain_schema(same).types == [pa.timestamp("ms"), pa.string(), pa.uint32()]


def test_each_difference_is_named_and_only_its_rule_lets_it_pass() -> None:
    cases = {
        "added": (STREAM.append(pa.field("x", pa.bool_())), "  + x: bool  (added)", "ignore"),
        "dropped": (STREAM.remove(2), "  - n: int64  (dropped)", "null"),
        "retyped": (STREAM.set(2, pa.field("n", pa.string())), "  ~ n: int64 -> string  (retyped)", "cast"),
        "reordered": (pa.schema([STREAM.field(at) for at in (1, 0, 2)]), "  order: item, ts, n  (reordered)", "follow"),
    }
    for kind, (found, line, rule) in cases.items():
        drift = drift_of(STREAM, found)
        assert str(drift) == line
        others = {other: case[2] for other, case in cases.items() if other != kind}
        with pytest.raises(SchemaDrift, match=f"declare {kind}={rule}"):
            drift.check(others, where="here", needed=())
        drift.check({kind: rule}, where="here", needed=())
    with pytest.raises(SchemaDrift, match="the column 'n' cannot be left out"):
        drift_of(STREAM, STREAM.remove(2)).check({"dropped": "null"}, where="here", needed=("n",))


def test_text_is_judged_cell_by_cell_unless_its_cells_are_plainly_something_else() -> None:
    kinds = {
        "text": pa.string(),
        "whole": pa.int64(),
        "number": pa.float64(),
        "time": pa.timestamp("us"),
        "yes": pa.bool_(),
    }
    fits = {
        "text": {"text", "whole", "number", "time", "yes"},
        "whole": {"text", "whole", "number"},
        "number": {"text", "whole", "number"},
        "time": {"text", "time"},
        "yes": {"text", "yes"},
    }
    for found, kind in kinds.items():
        for wanted, other in kinds.items():
            drift = drift_of(pa.schema([("a", other)]), pa.schema([("a", kind)]), text=True)
            assert (not drift.retyped) == (wanted in fits[found]), (found, wanted)


def test_a_type_widens_to_another_only_if_no_value_is_lost() -> None:
    """Every pair of whole-number types against their ranges."""
    whole = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]

    def span(kind: Any) -> tuple[int, int]:
        bits = kind.bit_width
        return (0, 2**bits - 1) if str(kind).startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)

    for one in whole:
        for other in whole:
            low, high = span(one)
            assert widens(one, other) == (span(other)[0] <= low and high <= span(other)[1]), (one, other)
    assert widens(pa.float32(), pa.float64())
    assert not widens(pa.float64(), pa.float32())
    assert not widens(pa.int32(), pa.float64())
    assert not widens(pa.timestamp("us", "UTC"), pa.timestamp("us"))
    assert widens(pa.null(), pa.date32())
    assert widens(pa.decimal128(5, 2), pa.decimal128(9, 2))
    assert not widens(pa.decimal128(5, 2), pa.decimal128(9, 3))


def test_types_are_read_as_people_write_them() -> None:
    assert parse_type(" Decimal(9, 2) ", where="here") == pa.decimal128(9, 2)
    assert parse_type("timestamp[ns]", where="here") == pa.timestamp("ns")
    assert parse_type("UINT8", where="here") == pa.uint8()
    for wrong in ("decimal(40, 2)", "decimal(2, 3)", "decimal(x)", "strng", ""):
        with pytest.raises(ConfigError, match="here: needed a column type; got"):
            parse_type(wrong, where="here")
    with pytest.raises(ConfigError, match="drift: needed one of added, dropped"):
        check_rules({"renamed": "stop"}, where="here")


# --- cutting by time --------------------------------------------------------------------------------------


def test_stretches_hold_whole_ranges_up_to_a_limit_and_pieces_of_large_ones() -> None:
    counted = {-2: 3, -1: 4, 0: 2, 3: 90, 4: 1, 5: 9, 6: 1}
    assert stretches(counted, {3: [310, 350]}, 100, 9) == [
        Stretch(-200, 9), Stretch(300, None), Stretch(310, None), Stretch(350, None), Stretch(400, 1), Stretch(500, 9),
        Stretch(600, 1),
    ]  # fmt: skip
    for seed in range(50):
        source = random.Random(seed)
        counted = {place: source.randrange(1, 20) for place in sorted(source.sample(range(-30, 30), 20))}
        found = stretches(counted, {}, 7, 15)
        assert sum(one.rows or 0 for one in found) == sum(counted.values())
        assert [one.begin for one in found] == sorted(one.begin for one in found)
        assert all((one.rows or 0) <= 15 or one.rows in counted.values() for one in found)


@pytest.mark.parametrize("size", [0, 1, 2, 7, 100])
def test_the_search_for_a_stretch_is_right_at_every_edge(size: int) -> None:
    cuts = sorted(random.Random(size).sample(range(-500, 500), size))
    sql = cut_sql(cuts).replace("L", "")
    found = duckdb.execute(f"SELECT ts, {sql} FROM range(-501, 501) t(ts)").fetchall()
    assert all(at == sum(cut <= ts for cut in cuts) for ts, at in found)


# --- what a failed job says -------------------------------------------------------------------------------


class FakeError(Exception):
    """An exception as PySpark raises them."""


FakeError.__module__ = "pyspark.errors.exceptions.captured"
TRACEBACK = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/somewhere/worker.py", line 18, in write
    raise it
{last}
"""


def failing(said: str, **options: Any) -> Exception:
    with pytest.raises(Exception) as caught, spark_failures("stream 'shop'", **options):
        raise FakeError(said)
    assert "\n" not in str(caught.value)
    return caught.value


def test_an_error_of_a_task_comes_back_as_itself() -> None:
    error = failing(
        TRACEBACK.format(last="nile.summaries.errors.StoreWriteError: lake/x: needed to write; got: EIO; mend it")
    )
    assert isinstance(error, StoreWriteError)
    assert str(error) == "lake/x: needed to write; got: EIO; mend it"
    error = failing(TRACEBACK.format(last="ValueError: odd"))
    assert isinstance(error, SparkFailed)
    assert str(error) == "stream 'shop': Spark failed: odd"
    error = failing(TRACEBACK.format(last="nile.summaries.errors.nothing: odd"))
    assert isinstance(error, SparkFailed)
    assert sentence(TRACEBACK.format(last="KeyError: 'a'")) == "'a'"


def test_a_full_disk_and_a_broken_file_are_named_with_the_mend() -> None:
    full = failing("java.io.IOException: No space left on device")
    assert str(full) == (
        "stream 'shop': Spark failed: the disk is full; make room where the output goes and in the directory of "
        "temporary files (TMPDIR), then run it again"
    )
    limited = failing("java.io.IOException: File too large")
    assert str(limited) == (
        "stream 'shop': Spark failed: a file would be larger than a process may write; raise the size that a file may "
        "have (ulimit -f), then run it again"
    )
    files = (Path("good.parquet"), Path("bad.parquet"))
    said = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///tmp/nile-links-ab/000001.parquet"
    broken = failing(said, files=files)
    assert isinstance(broken, SourceError)
    assert str(broken).startswith("stream 'shop': bad.parquet: needed a whole file")
    assert isinstance(failing(said.replace("000001", "000007"), files=files), SparkFailed)


@pytest.mark.parametrize(
    ("module", "name"),
    [("pyspark", "pyspark"), ("pandas", "pandas"), ("pyarrow", "pyarrow"), ("google.protobuf", "protobuf")],
)
def test_a_package_that_spark_needs_silently_is_named(
    monkeypatch: pytest.MonkeyPatch, module: str, name: str, tmp_path: Path
) -> None:
    needed_packages("ingest")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError) as told:
        ingest(tmp_path / "in.csv", tmp_path / "lake", stream="shop", time="at", key="item")
    assert str(told.value) == (
        f"ingest: needed the Python package '{name}', which Spark imports; it is not installed; pip install "
        "'nile-streams[spark]', or see `nile doctor`"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_master_that_does_not_answer_is_named_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]  # bound, but nobody listens
        with pytest.raises(SparkFailed) as told:
            check_master(f"spark://127.0.0.1:{port}")
        assert str(told.value) == (
            f"Spark session: needed the master spark://127.0.0.1:{port} to answer; got 127.0.0.1:{port}: [Errno "
            f"{errno.ECONNREFUSED}] Connection refused; start it, or check host, port and firewall"
        )
        taken.listen()
        check_master(f"spark://127.0.0.1:{port}")
    with pytest.raises(SparkFailed, match="start it, or check host"):
        check_master("spark://nowhere")
    check_master("local[2]")


# --- progress ---------------------------------------------------------------------------------------------


def test_progress_reads_as_a_line_with_rows_share_and_what_remains() -> None:
    assert str(JobProgress("reading")) == "reading"
    assert str(JobProgress("ordering", 1_200_000)) == "ordering 1,200,000 rows"
    assert str(JobProgress("ordering", 10, 0.25, 42.4)) == "ordering 10 rows, 25%, about 42 s left"
    assert str(JobProgress("ordering", 10, 1.0, 0.0)) == "ordering 10 rows, done"
    assert str(JobProgress("ordering", 10, 0.25, 600)).endswith("about 10 min left")
    assert str(JobProgress("ordering", 10, 0.25, 9_000)).endswith("about 2.5 h left")


def test_the_share_done_counts_the_tasks_of_all_stages_of_the_group() -> None:
    class Stage:
        def __init__(self, done: int, tasks: int) -> None:
            self.numCompletedTasks, self.numTasks = done, tasks

    class Job:
        def __init__(self, *stages: int) -> None:
            self.stageIds = stages

    class Tracker:
        def getJobIdsForGroup(self, group: str) -> list[int]:  # noqa: N802
            return [1, 2] if group == "g" else []

        def getJobInfo(self, job: int) -> Job | None:  # noqa: N802
            return Job(1, 2, 3) if job == 1 else None

        def getStageInfo(self, stage: int) -> Stage | None:  # noqa: N802
            return {1: Stage(4, 4), 2: Stage(1, 6)}.get(stage)

    assert tasks_done(Tracker(), "g") == 0.5
    assert tasks_done(Tracker(), "other") == 0.0
