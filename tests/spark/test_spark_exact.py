"""The exact join on Spark against a brute-force oracle, DuckDB and the known sizes on retail."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nile.expressions.conditions import parse_condition
from nile.spark.exact.join import exact_join
from nile.spark.ingesting.prepare import PrepareSpec, prepare
from nile.summaries.errors import ConfigError, KeyTypeError, SourceError, SourceMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Tuple = tuple[int, Any]  # ts, key
Row = tuple[int, int, int, int, int, int]
COLUMNS = ("left_ordinal", "right_ordinal", "key_rank", "age", "window_count", "frequency")
FAR = 6_900_000_000_000_000_000  # ns; two such times lie further apart than int64 can say


# --- the oracle: every pair looked at, every count counted ------------------------------------------------


def same(one: object, other: object) -> bool:
    if one is None or other is None:
        return False
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other):
        return True
    return one == other


def by_bytes(key: Any) -> Any:
    if isinstance(key, str):
        return key.encode()
    return (math.isnan(key), key) if isinstance(key, float) else key


def oracle(left: Sequence[Tuple], right: Sequence[Tuple], window: int | None) -> list[Row]:
    tuples = [(ts, 0, i, key) for i, (ts, key) in enumerate(left)]
    tuples += [(ts, 1, i, key) for i, (ts, key) in enumerate(right)]
    pairs = []
    for one in tuples[: len(left)]:
        for other in tuples[len(left) :]:
            age = abs(one[0] - other[0])
            if same(one[3], other[3]) and (window is None or age <= window):
                pairs.append((one, other, age))
    ranked: list[Any] = []
    for key in sorted((one[3] for one, _, _ in pairs), key=by_bytes):
        if not ranked or not same(ranked[-1], key):
            ranked.append(key)
    rows = []
    for one, other, age in pairs:
        later = max(one[:3], other[:3])
        alike = [t for t in tuples if same(t[3], one[3])]
        in_window = [t for t in alike if t[:3] <= later and (window is None or later[0] - window <= t[0] <= later[0])]
        rank = next(i for i, key in enumerate(ranked) if same(key, one[3]))
        rows.append((one[2], other[2], rank, age, len(in_window), len(alike)))
    return sorted(rows)


def test_the_oracle_counts_a_small_case_as_a_person_would() -> None:
    left = [(0, "a"), (5, "a"), (5, "b")]
    right = [(5, "a"), (9, "a"), (9, "c")]
    assert oracle(left, right, 5) == [(0, 0, 0, 5, 3, 4), (1, 0, 0, 0, 3, 4), (1, 1, 0, 4, 3, 4)]


# --- streams ----------------------------------------------------------------------------------------------


def write(path: Path, tuples: Sequence[Tuple], kind: pa.DataType, parts: int = 1) -> Path:
    """A prepared stream in `parts` files."""
    path.mkdir(parents=True)
    table = pa.table(
        {
            "ordinal": pa.array(range(len(tuples)), pa.int64()),
            "ts": pa.array([ts for ts, _ in tuples], pa.int64()),
            "key": pa.array([key for _, key in tuples], kind),
        }
    )
    size = -(-max(1, len(tuples)) // parts)
    for part in range(parts):
        pq.write_table(table.slice(part * size, size), path / f"part-{part:05}.parquet")
    (path / "_SUCCESS").touch()
    return path


def read(path: Path) -> list[Row]:
    table = pq.read_table(path)
    assert table.schema.names == list(COLUMNS)
    assert table.schema.types == [pa.int64(), pa.int64(), pa.int32(), pa.int64(), pa.int32(), pa.int64()]
    return sorted(zip(*(table[name].to_pylist() for name in COLUMNS), strict=True))


def stream(seed: int, size: int, keys: Sequence[Any], span: int = 90) -> list[Tuple]:
    """Tuples in order with many ties, heavy and rare keys."""
    source = random.Random(seed)
    times = sorted(source.randrange(-span // 3, span) for _ in range(size))
    return [(ts, keys[int(len(keys) * source.random() ** 2)]) for ts in times]


INTEGERS = [None, *range(-20, 20)]
TEXTS = [None, "", "a", "A", "a ", "é", "e\u0301", "\uffee", "\U0001f600", "z" * 300]
FLOATS = [None, math.nan, -0.0, 0.0, math.inf, -math.inf, *(x / 4 for x in range(-9, 9))]


@pytest.mark.parametrize(
    ("left_type", "right_type", "keys", "window"),
    [
        (pa.int32(), pa.int64(), INTEGERS, None),
        (pa.int64(), pa.int8(), INTEGERS, 7),
        (pa.string(), pa.string(), TEXTS, 1),
        (pa.string(), pa.string(), TEXTS, 40),
        (pa.float64(), pa.float32(), FLOATS, 7),
        (pa.float64(), pa.float64(), FLOATS, 10_000),
        (pa.decimal128(6, 1), pa.decimal128(20, 1), [None, Decimal("0.5"), Decimal("-7.0")], 9),
        (pa.binary(), pa.binary(), [None, b"", b"\x00", b"\x7f", b"\x80\xff"], 15),
    ],
    ids=["int, no window", "int", "text, 1 ns", "text", "float", "float, the whole run", "decimal", "bytes"],
)
def test_every_column_of_the_answer_equals_the_oracle(
    spark: SparkSession,
    tmp_path: Path,
    left_type: pa.DataType,
    right_type: pa.DataType,
    keys: list[Any],
    window: int | None,
) -> None:
    left, right = stream(1, 260, keys), stream(2, 180, keys)
    answer = exact_join(
        spark,
        write(tmp_path / "left", left, left_type, parts=3),
        write(tmp_path / "right", right, right_type),
        window,
        tmp_path / "answer",
    )
    expected = oracle(left, right, window)
    assert len(expected) > 20
    assert read(answer.path) == expected
    assert answer.pairs == len(expected)


@pytest.mark.parametrize("window", [5, 2**61 - 2, 2**62 + 5], ids=str)
def test_times_at_the_ends_of_the_range_and_pairs_at_the_edge_of_the_window_are_right(
    spark: SparkSession,
    tmp_path: Path,
    window: int,
) -> None:
    step = min(window, 2**60)
    ends = [-FAR, -FAR + step, -FAR + step + 1, -step, -1, 0, 1, step, FAR - step - 1, FAR - step, FAR]
    left = sorted((ts, key) for ts in ends for key in (1, 2))
    right = sorted((ts, key) for ts in ends for key in (2, 3))
    paths = [write(tmp_path / name, tuples, pa.int64()) for name, tuples in (("l", left), ("r", right))]
    assert read(exact_join(spark, paths[0], paths[1], window, tmp_path / "answer").path) == oracle(left, right, window)


def test_a_stream_may_be_joined_with_itself(spark: SparkSession, tmp_path: Path) -> None:
    tuples = stream(5, 120, ["a", "b", None])
    path = write(tmp_path / "both", tuples, pa.string())
    assert read(exact_join(spark, path, path, 20, tmp_path / "answer").path) == oracle(tuples, tuples, 20)


def test_directories_may_have_names_that_spark_takes_for_patterns(spark: SparkSession, tmp_path: Path) -> None:
    tuples = stream(9, 30, [1, 2])
    path = write(tmp_path / "a[b]{c}*" / ".s: \\q,1", tuples, pa.int64())
    answer = exact_join(spark, path, path, 20, path.parent / "_answer [1]")
    assert read(answer.path) == oracle(tuples, tuples, 20)


def test_an_empty_side_gives_an_empty_answer(spark: SparkSession, tmp_path: Path) -> None:
    full = write(tmp_path / "full", stream(6, 10, [1, 2]), pa.int64())
    empty = write(tmp_path / "empty", [], pa.int64())
    for left, right, window in ((full, empty, 5), (empty, empty, None)):
        answer = exact_join(spark, left, right, window, tmp_path / "answer")
        assert answer.pairs == 0
        assert read(answer.path) == []


# --- outside judges ---------------------------------------------------------------------------------------


def test_duckdb_finds_the_same_pairs_and_counts(spark: SparkSession, tmp_path: Path) -> None:
    keys = [None, *(f"item {number}" for number in range(400))]
    left = write(tmp_path / "left", stream(7, 6_000, keys, 100_000), pa.string(), parts=2)
    right = write(tmp_path / "right", stream(8, 5_000, keys, 100_000), pa.string())
    window = 900
    answer = exact_join(spark, left, right, window, tmp_path / "answer")
    judge = duckdb.connect()
    judge.execute(
        f"CREATE TABLE both_streams AS SELECT 0 AS stream, * FROM '{left}/*.parquet' "
        f"UNION ALL SELECT 1, * FROM '{right}/*.parquet'"
    )
    query = f"""
        WITH pairs AS (
            SELECT l.ordinal AS lo, r.ordinal AS ro, l.key AS key, abs(l.ts - r.ts) AS age,
                   greatest(row(l.ts, 0, l.ordinal), row(r.ts, 1, r.ordinal)) AS t
            FROM both_streams l JOIN both_streams r
              ON l.stream = 0 AND r.stream = 1 AND l.key = r.key AND abs(l.ts - r.ts) <= {window}
        )
        SELECT lo, ro, (dense_rank() OVER (ORDER BY pairs.key)) - 1, any_value(age),
               count(*) FILTER (row(u.ts, u.stream, u.ordinal) <= t AND u.ts >= t[1] - {window}), count(*)
        FROM pairs JOIN both_streams u ON u.key = pairs.key
        GROUP BY lo, ro, pairs.key, t ORDER BY lo, ro
    """
    found = read(answer.path)
    assert found == judge.execute(query).fetchall()
    assert len(found) > 1_000


def counted_by_duckdb(retail: Path, left: str, right: str, window: int) -> int:
    query = (
        f"SELECT count(*) FROM '{retail}' l JOIN '{retail}' r ON l.item_id = r.item_id "
        f"AND abs(epoch_us(l.ts) - epoch_us(r.ts)) <= {window // 1_000} WHERE l.{left} AND r.{right}"
    )
    return int(duckdb.connect().execute(query).fetchall()[0][0])


@pytest.mark.long  # the runner and the exact jobs are held to the same numbers
def test_retail_has_the_known_numbers_of_pairs(spark: SparkSession, tmp_path: Path, retail: Path) -> None:
    second = 1_000_000_000
    for left, right, windows in (
        ("vstore = 0", "vstore = 1", {600: 654, 3_600: 2_834, 21_600: 11_309}),
        ("store_id = 0", "store_id <> 0", {3_600: 17_524}),
    ):
        for name, where in (("left", left), ("right", right)):
            condition = parse_condition(where, where=f"where of {name}")
            prepare(spark, PrepareSpec(name, retail, "ts", "item_id", condition), tmp_path / name)
        for seconds, known in windows.items():
            answer = exact_join(spark, tmp_path / "left", tmp_path / "right", seconds * second, tmp_path / "answer")
            assert answer.pairs == known
        assert counted_by_duckdb(retail, left, right, 3_600 * second) == windows[3_600]


# --- what cannot be joined --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right"),
    [(pa.int64(), pa.string()), (pa.string(), pa.binary()), (pa.float64(), pa.int32())],
    ids=str,
)
def test_keys_of_different_types_are_refused(
    spark: SparkSession,
    tmp_path: Path,
    left: pa.DataType,
    right: pa.DataType,
) -> None:
    paths = [write(tmp_path / name, [(0, None)], kind) for name, kind in (("l", left), ("r", right))]
    with pytest.raises(KeyTypeError, match="never compare equal"):
        exact_join(spark, paths[0], paths[1], 5, tmp_path / "answer")


def test_ages_beyond_64_bits_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "wide", [(-FAR, 1), (FAR, 1)], pa.int64())
    with pytest.raises(SourceError, match="span 437 years"):
        exact_join(spark, path, path, None, tmp_path / "answer")


def test_a_missing_or_foreign_directory_is_named(spark: SparkSession, tmp_path: Path) -> None:
    good = write(tmp_path / "good", [(0, 1)], pa.int64())
    with pytest.raises(SourceMissing, match=r"no prepared stream at .*nowhere"):
        exact_join(spark, good, tmp_path / "nowhere", 5, tmp_path / "answer")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    with pytest.raises(SourceError, match="foreign is no prepared stream"):
        exact_join(spark, good, foreign, 5, tmp_path / "answer")
    pq.write_table(pa.table({"a": [1]}), foreign / "part-0.parquet")
    (foreign / "_SUCCESS").touch()
    with pytest.raises(SourceError, match="foreign is no prepared stream"):
        exact_join(spark, good, foreign, 5, tmp_path / "answer")
    (foreign / "part-0.parquet").write_bytes(b"PAR1 cut short")
    with pytest.raises(SourceError, match="foreign is no prepared stream"):
        exact_join(spark, good, foreign, 5, tmp_path / "answer")
    (good / "_SUCCESS").unlink()
    with pytest.raises(SourceError, match="no _SUCCESS"):
        exact_join(spark, good, good, 5, tmp_path / "answer")


@pytest.mark.parametrize("window", [0, -1])
def test_a_window_without_length_is_refused(
    spark: SparkSession,
    tmp_path: Path,
    window: int,
) -> None:
    with pytest.raises(ConfigError, match="more than 0 ns"):
        exact_join(spark, tmp_path, tmp_path, window, tmp_path / "answer")


def test_progress_is_told_in_words(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "s", [(0, 1)], pa.int64())
    told: list[str] = []
    exact_join(spark, path, path, 5, tmp_path / "answer", told.append)
    assert len(told) == 2
    assert all(line.startswith("exact: ") for line in told)
