"""Exact answers counted on Spark: joins, selections and aggregates, against looking, DuckDB and the engine."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nile.exact.join.window_graph import WindowGraph
from nile.exact.join.wjoin import window_join
from nile.expressions.conditions import parse_condition
from nile.report.metrics import ExactPairs
from nile.spark.exact.counts import JoinTruth, exact_truth
from nile.spark.exact.input import TupleFiles
from nile.spark.exact.join import exact_join
from nile.spark.exact.multiway import Windows, exact_many
from nile.spark.exact.rows import exact_aggregates, exact_selection
from nile.summaries.errors import ConfigError, SourceError, SumOverflow, UnknownColumn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SECOND = 1_000_000_000
Tuple = tuple[int, Any]


def write(path: Path, tuples: list[Tuple], kind: pa.DataType, **columns: Any) -> TupleFiles:
    """A stream in one file, under the names of a lake's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(
        {
            "_ordinal": pa.array(range(len(tuples)), pa.int64()),
            "_ts": pa.array([ts for ts, _ in tuples], pa.int64()),
            "day": pa.array([key for _, key in tuples], kind),
            **columns,
        }
    )
    pq.write_table(table, path)
    return TupleFiles(path.stem, (path,), "day")


def stream(source: random.Random, size: int, keys: int, span: int) -> list[Tuple]:
    times = sorted(source.randrange(span) for _ in range(size))
    return [(ts, None if source.random() < 0.05 else int(keys * source.random() ** 2)) for ts in times]


# --- two streams ------------------------------------------------------------------------------------------


def counted(pairs: ExactPairs, window: int | None, cap: int) -> dict[str, Any]:
    """What the report's own scoring makes of the pairs."""
    table = np.zeros((100, 100), np.int64)
    np.add.at(table, (pairs.by_key.bins, pairs.by_age(window).bins), 1)
    return {
        "pairs": len(pairs),
        "keys": pairs.keys,
        "table": table.tolist(),
        "outliers": int(pairs.outliers(cap).sum()),
        "outliers_paper": int(pairs.paper_outliers.sum()),
        "age_sum": int(pairs.age.sum()),
    }


def told(truth: JoinTruth) -> dict[str, Any]:
    names = ("pairs", "keys", "outliers", "outliers_paper", "age_sum")
    return {name: getattr(truth, name) for name in names} | {"table": truth.table.tolist()}


def rows(path: Path) -> list[tuple[Any, ...]]:
    table = pq.read_table(path)
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize(
    "window", [40, pytest.param(None, marks=pytest.mark.long), pytest.param(10**6, marks=pytest.mark.long)], ids=str
)
def test_counting_tells_what_scoring_the_pairs_tells(spark: SparkSession, tmp_path: Path, window: int | None) -> None:
    source = random.Random(1 if window is None else window)
    kind = pa.string() if window is None else pa.int64()
    left, right = (
        write(tmp_path / f"{name}.parquet", [(ts, key if key is None or window else str(key)) for ts, key in
                                             stream(source, size, 60, 900)], kind)
        for name, size in (("l", 500), ("r", 400))
    )  # fmt: skip
    answer = exact_join(spark, left, right, window, tmp_path / "pairs")
    truth = exact_truth(spark, left, right, window, outlier_cap=3, outliers=tmp_path / "outliers")
    pairs = ExactPairs.read(answer.path)
    assert told(truth) == counted(pairs, window, 3)
    assert truth.pairs > 300
    assert 0 < truth.outliers < truth.pairs
    assert rows(tmp_path / "outliers") == [row for row in rows(answer.path) if row[4] <= 3]
    assert truth.key_histogram.sum() == truth.age_histogram.sum() == truth.pairs
    assert truth.mean_age_s == pytest.approx(pairs.age.mean() / SECOND)


def test_nothing_that_joins_counts_nothing(spark: SparkSession, tmp_path: Path) -> None:
    one = write(tmp_path / "one.parquet", [(1, 5), (2, None)], pa.int64())
    other = write(tmp_path / "other.parquet", [(1, 6), (2, None)], pa.int64())
    none = TupleFiles("none", (), "day")
    for left, right in ((one, other), (none, none)):
        truth = exact_truth(spark, left, right, 5, outliers=tmp_path / "outliers")
        assert (truth.pairs, truth.keys, truth.mean_age_s) == (0, 0, None)
    with pytest.raises(ConfigError, match="outlier_cap"):
        exact_truth(spark, one, other, 5, outlier_cap=0)
    with pytest.raises(ConfigError, match="more than 0 ns"):
        exact_truth(spark, one, other, 0)


# --- many streams -----------------------------------------------------------------------------------------


def looked(streams: list[list[Tuple]], windows: Windows) -> list[tuple[int, ...]]:
    """Every combination looked at."""
    found = []
    if isinstance(windows, int):
        windows = dict.fromkeys(itertools.combinations(range(len(streams)), 2), windows)
    for choice in itertools.product(*(range(len(one)) for one in streams)):
        rows = [one[at] for one, at in zip(streams, choice, strict=True)]
        if rows[0][1] is None or any(row[1] != rows[0][1] for row in rows):
            continue
        if all(abs(rows[i][0] - rows[j][0]) <= window for (i, j), window in (windows or {}).items()):
            found.append(choice)
    return found


@pytest.mark.parametrize(
    "windows",
    [
        pytest.param(30, id="clique"),
        pytest.param({(0, 1): 40, (2, 1): 15}, id="path", marks=pytest.mark.long),
        pytest.param({(0, 2): 100, (1, 2): 60, (0, 1): 20}, id="graph", marks=pytest.mark.long),
        pytest.param(None, id="no window", marks=pytest.mark.long),
    ],
)
def test_many_streams_give_every_combination_once(spark: SparkSession, tmp_path: Path, windows: Windows) -> None:
    source = random.Random(5)
    streams = [stream(source, 60 + 10 * at, 9, 300) for at in range(3)]
    files = [write(tmp_path / f"{at}.parquet", one, pa.int32()) for at, one in enumerate(streams)]
    truth = exact_many(spark, files, windows, out=tmp_path / "out")
    expected = looked(streams, windows)
    assert rows(tmp_path / "out") == expected
    assert (truth.combinations, truth.keys) == (len(expected), len({streams[0][one[0]][1] for one in expected}))
    ages = [
        max(times) - min(times) for one in expected if (times := [s[at][0] for s, at in zip(streams, one, strict=True)])
    ]
    assert truth.width == max(ages)
    bins = [min(99, 100 * age // truth.width) for age in ages]
    assert truth.age_histogram.tolist() == np.bincount(bins, minlength=100).tolist()
    assert truth.key_histogram.sum() == len(expected) > 10


def test_windows_that_leave_a_stream_alone_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    one = write(tmp_path / "one.parquet", [(1, 5)], pa.int64())
    with pytest.raises(ConfigError, match="connect all streams; stream 2 has none"):
        exact_many(spark, [one, one, one], {(0, 1): 5})
    with pytest.raises(ConfigError, match="a window of \\(0, 3\\)"):
        exact_many(spark, [one, one, one], {(0, 3): 5})
    with pytest.raises(ConfigError, match="2 streams or more"):
        exact_many(spark, [one], 5)


ONE = 10_000  # keys of one workload; those of several stand side by side in one run of Spark


def judged(spark: SparkSession, tmp_path: Path, seed: int, streams: int) -> list[tuple[int, int, int]]:
    """(Spark, DuckDB, engine) of four random workloads under the same windows: how many combinations each finds."""
    source = random.Random(seed)
    joined: list[list[Tuple]] = [[] for _ in range(streams)]
    for workload in range(4):
        keys, span = source.choice((3, 20, 200)), source.choice((200, 400, 3_000))
        for one in joined:
            tuples = stream(source, source.randrange(20, 120), keys, span)
            one += [(ts, None if key is None else workload * ONE + key) for ts, key in tuples]
    joined = [sorted(one, key=lambda tuple_: tuple_[0]) for one in joined]
    files = [write(tmp_path / f"{seed}-{at}.parquet", one, pa.int64()) for at, one in enumerate(joined)]
    windows = {(at, at + 1): source.randrange(1, 60) for at in range(streams - 1)}
    if source.random() < 0.5:
        windows = dict.fromkeys(itertools.combinations(range(streams), 2), source.randrange(1, 60))
    elif streams > 2 and source.random() < 0.5:
        windows[0, streams - 1] = source.randrange(1, 90)

    def by_workload(firsts: Any) -> list[int]:
        return np.bincount([joined[0][at][1] // ONE for at in firsts], minlength=4).tolist()

    truth = exact_many(spark, files, windows, out=tmp_path / f"{seed}-out")
    by_spark = by_workload(row[0] for row in rows(tmp_path / f"{seed}-out"))
    if streams == 2:
        assert exact_truth(spark, files[0], files[1], windows[0, 1]).pairs == truth.combinations
    tables = ", ".join(f"'{one.files[0]}' AS s{at}" for at, one in enumerate(files))
    equal = " AND ".join(f"s0.day = s{at}.day" for at in range(1, streams))
    near = " AND ".join(f"abs(s{i}._ts - s{j}._ts) <= {window}" for (i, j), window in windows.items())
    found = duckdb.execute(f"SELECT s0._ordinal FROM {tables} WHERE {equal} AND {near}").fetchall()
    merged = sorted((ts, at, key) for at, one in enumerate(joined) for ts, key in one if key is not None)
    ts, at, codes = (np.array(column, np.int64) for column in zip(*merged, strict=True))
    firsts = [number for number, one in enumerate(joined[0]) if one[1] is not None]
    join = window_join(WindowGraph.of(streams, windows))
    join.push(at, ts, codes)
    engine = by_workload(firsts[row[0]] for block in join.outputs() for row in block.tolist())
    return list(zip(by_spark, by_workload(row[0] for row in found), engine, strict=True))


def test_spark_duckdb_and_the_engine_agree_on_random_workloads(spark: SparkSession, tmp_path: Path) -> None:
    found = [one for streams in (2, 3) for one in judged(spark, tmp_path, streams, streams)]
    assert len(found) == 8
    assert all(one == two == three for one, two, three in found), found
    assert sum(one > 0 for one, _, _ in found) >= 6


@pytest.mark.long
def test_spark_duckdb_and_the_engine_agree_on_a_hundred_random_workloads(spark: SparkSession, tmp_path: Path) -> None:
    found = [one for seed in range(100, 128) for one in judged(spark, tmp_path, seed, 2 + seed % 3)]
    assert len(found) >= 100
    assert all(one == two == three for one, two, three in found), found
    assert sum(one > 0 for one, _, _ in found) >= 80


def retail_stream(tmp_path: Path, retail: Path, column: str, values: Any) -> TupleFiles:
    """The tuples of some stores, by item."""
    table = pq.read_table(retail, columns=["seq", "ts", column, "item_id"])
    table = table.filter(pa.array(np.isin(table.column(column).to_numpy(), values)))
    table = table.sort_by([("ts", "ascending"), ("seq", "ascending")])
    ts = table.column("ts").cast(pa.timestamp("ns")).cast(pa.int64()).to_pylist()
    tuples = list(zip(ts, table.column("item_id").to_pylist(), strict=True))
    return write(tmp_path / f"{column}{np.min(values)}.parquet", tuples, pa.string())


def test_retail_has_the_known_numbers_of_pairs_and_triples(spark: SparkSession, tmp_path: Path, retail: Path) -> None:
    stores = [retail_stream(tmp_path, retail, "vstore", [at]) for at in range(3)]
    assert exact_truth(spark, stores[0], stores[1], 3_600 * SECOND).pairs == 2_834
    for seconds, known in ((3_600, 345), (21_600, 4_331)):
        assert exact_many(spark, stores, seconds * SECOND).combinations == known


@pytest.mark.long
def test_retail_has_the_other_known_numbers_of_pairs(spark: SparkSession, tmp_path: Path, retail: Path) -> None:
    stores = [retail_stream(tmp_path, retail, "vstore", [at]) for at in range(2)]
    for seconds, known in ((600, 654), (21_600, 11_309)):
        assert exact_truth(spark, stores[0], stores[1], seconds * SECOND).pairs == known
    home, abroad = (retail_stream(tmp_path, retail, "store_id", values) for values in ([0], range(1, 99)))
    assert exact_truth(spark, home, abroad, 3_600 * SECOND).pairs == 17_524


# --- selections and aggregates ----------------------------------------------------------------------------


def shop(tmp_path: Path, size: int = 800) -> TupleFiles:
    source = random.Random(8)
    prices = pa.array([source.choice((None, 1.5, 20.25, -3.0)) for _ in range(size)], pa.float64())
    amounts = pa.array([None if source.random() < 0.1 else source.randrange(-50, 50) for _ in range(size)], pa.int64())
    when = pa.array([at * 10**6 for at in range(size)], pa.timestamp("us"))
    return write(tmp_path / "shop.parquet", stream(source, size, 30, 5_000), pa.int32(), price=prices, amount=amounts,
                 when=when)  # fmt: skip


def test_a_selection_counts_what_duckdb_counts(spark: SparkSession, tmp_path: Path) -> None:
    files = shop(tmp_path)
    where = "price > 1 AND amount <> 3 AND \"when\" >= TIMESTAMP '1970-01-01 00:01:00'"
    condition = parse_condition(where, where="the selection")
    truth = exact_selection(spark, files, condition, out=tmp_path / "out")
    judge = duckdb.execute(f"SELECT _ordinal, _ts, day FROM '{files.files[0]}' WHERE {where} ORDER BY 1").fetchall()
    assert rows(tmp_path / "out") == [(row[0],) for row in judge]
    assert (truth.rows, truth.selected) == (800, len(judge))
    keys = sorted({row[2] for row in judge if row[2] is not None})
    ranks = [keys.index(row[2]) * 100 // len(keys) for row in judge if row[2] is not None]
    assert truth.keys == len(keys)
    assert truth.key_histogram.tolist() == np.bincount(ranks, minlength=100).tolist()
    first, last = min(row[1] for row in judge), max(row[1] for row in judge)
    bins = [min(99, 100 * (row[1] - first) // (last - first)) for row in judge]
    assert truth.time_histogram.tolist() == np.bincount(bins, minlength=100).tolist()
    with pytest.raises(UnknownColumn, match="no column 'prize'"):
        exact_selection(spark, files, parse_condition("prize > 1", where="the selection"))
    with pytest.raises(SourceError, match="the lake has none of it yet"):
        exact_selection(spark, TupleFiles("empty", ()), None)


def test_aggregates_by_time_and_key_are_duckdbs(spark: SparkSession, tmp_path: Path) -> None:
    files = shop(tmp_path)
    for value in ("amount", "price"):
        found = exact_aggregates(spark, files, value, every=700, by_key=True)
        query = f"""
            SELECT _ts - _ts % 700 AS b, day, count(*), count({value}), sum({value}), sum({value}::DOUBLE ** 2),
                   min({value}), max({value})
            FROM '{files.files[0]}' GROUP BY ALL ORDER BY b, day NULLS FIRST
        """
        judge = duckdb.execute(query).fetchall()
        got = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
        assert len(got) == len(judge) > 100
        for one, other in zip(got, judge, strict=True):
            assert one == pytest.approx(other, nan_ok=True)
    whole = exact_aggregates(spark, files, "amount", condition=parse_condition("amount > 0", where="here")).to_pylist()
    count, total = duckdb.execute(f"SELECT count(*), sum(amount) FROM '{files.files[0]}' WHERE amount > 0").fetchall()[
        0
    ]
    assert (whole[0]["count"], whole[0]["sum"]) == (count, total)
    big = write(tmp_path / "big.parquet", [(1, 1), (2, 1)], pa.int32(), n=pa.array([2**62, 2**62]), name=["a", "b"])
    with pytest.raises(SumOverflow, match="the sum of 'n' passes 64 bits"):
        exact_aggregates(spark, big, "n")
    with pytest.raises(ConfigError, match="needed a column of numbers"):
        exact_aggregates(spark, big, "name")
