"""The exact benchmarks compare like with like: every formulation gives the same pairs as the operator."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path

import duckdb
import numpy as np
import pytest

from nile.exact.join.count import count_whole
from nile.exact.join.window_graph import WindowGraph
from nile.exact.join.wjoin import window_join
from nile.experiments.benchmarks.exact.grid import Cell, _row, _some, cells, ended, peak_here
from nile.experiments.benchmarks.exact.join import joined_table
from nile.experiments.benchmarks.exact.peaks import peak_of
from nile.experiments.benchmarks.exact.ranges import compiled
from nile.experiments.benchmarks.exact.standing import BOUNDED, LATENESS, _Fed, _rows
from nile.experiments.benchmarks.exact.streams import (
    SECOND,
    best_of,
    duckdb_queries,
    duckdb_session,
    spark_join,
    streams,
)
from nile.experiments.benchmarks.exact.threads import _asked, _asker

WORK = streams(2_000, 3, keys=50, window=7 * SECOND)


def our_pairs() -> list[tuple[int, int]]:
    table = joined_table(window_join(WindowGraph.uniform(2, WORK.window)), WORK)
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_every_formulation_for_duckdb_gives_the_pairs_of_the_operator() -> None:
    connection = duckdb_session(WORK)
    ours = our_pairs()
    queries = duckdb_queries("L.o AS l, R.o AS r", WORK.window)
    assert len(queries) == 8
    for name, query in queries.items():
        assert sorted(connection.sql(query).fetchall()) == ours, name
    for name, query in duckdb_queries("count(*)", WORK.window).items():
        assert connection.sql(query).fetchall() == [(len(ours),)], name


def test_the_count_over_whole_arrays_is_the_number_of_pairs() -> None:
    assert count_whole((WORK.ts[0], WORK.ts[1]), (WORK.codes[0], WORK.codes[1]), WORK.window) == len(our_pairs())


@pytest.mark.parametrize("spread", [1, 10**14])
def test_the_count_over_whole_arrays_takes_nulls_and_codes_however_far_apart(spread: int) -> None:
    rng = np.random.default_rng(spread)
    for _ in range(50):
        window = int(rng.integers(1, 40))
        ts = [np.sort(rng.integers(0, 300, rng.integers(0, 80))) for _ in range(2)]
        codes = [rng.integers(-1, 6, each.shape[0]) * spread for each in ts]
        pairs = sum(
            1
            for a, x in zip(ts[0].tolist(), codes[0].tolist(), strict=True)
            for b, y in zip(ts[1].tolist(), codes[1].tolist(), strict=True)
            if x == y >= 0 and abs(a - b) <= window
        )
        assert count_whole((ts[0], ts[1]), (codes[0], codes[1]), window) == pairs


@pytest.mark.slow
@pytest.mark.spark
def test_the_formulation_for_spark_gives_the_pairs_of_the_operator(spark: object) -> None:
    seen: list[tuple[int, int]] = []
    spark_join(spark, WORK, lambda pairs: seen.extend((row.l, row.r) for row in pairs.collect()))()
    assert sorted(seen) == our_pairs()


def test_the_fastest_of_several_ways_is_found() -> None:
    assert best_of({"slow": lambda: sum(range(300_000)), "fast": lambda: None}) == "fast"


@pytest.mark.skipif(sys.platform != "linux", reason="peaks begin anew in /proc alone")
def test_a_peak_is_what_a_run_touches_and_not_what_was_there_before() -> None:
    before = np.ones(4 << 20)  # 32 MiB
    peak = peak_of(lambda: np.ones(8 << 20) * 2.0)
    assert peak is not None
    assert 60 << 20 <= peak <= 160 << 20  # what was free before is touched too, and is not new
    assert (peak_of(lambda: None) or 0) < 8 << 20
    del before


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peaks begin anew in /proc alone")
@pytest.mark.parametrize("name", ["Nile", "DuckDB"])
def test_a_cell_of_the_grid_is_weighed_with_its_answer(name: str) -> None:
    cell = Cell(600, 16.0, "int32", "pairs", "Arrow", 60_000)
    peak = peak_here(json.dumps({"cell": cell, "name": name, "form": "plain", "paths": []}))
    assert peak is not None
    assert peak >= 60_000 * 12 * 16  # bytes of some of the pairs, of two doubles each


@pytest.mark.parametrize("window", [1, 600, 86_400])
@pytest.mark.parametrize(("asked", "source"), [("count", "Arrow"), ("ranges", "Arrow"), ("ranges", "Parquet")])
def test_a_cell_of_the_grid_has_one_answer_whoever_is_asked(
    asked: str, source: str, window: int, tmp_path: Path
) -> None:
    library = compiled(tmp_path)
    row = _row(Cell(window, 16.0, "int32", asked, source, 3_000), library, weighed=False)
    assert row["rows"] > 3_000
    assert ("C wall" in row) == (asked == "count" and library is not None)
    assert row["Nile wall"] > 0.0 < row["DuckDB wall"]


def test_a_formulation_that_is_hopeless_is_not_waited_for() -> None:
    with closing(duckdb.connect()) as connection:

        def asked(count: int) -> int:
            text = (
                f"SELECT count(*) FROM range({count}) a, range({count}) b WHERE hash(a.range) = hash(b.range + 1) % 7"
            )
            return int(connection.sql(text).fetchall()[0][0])

        assert not ended(connection, lambda: asked(2_000_000), 0.05)
        assert ended(connection, lambda: asked(10), 60.0)
        assert ended(connection, lambda: asked(10), float("inf"))


def test_the_quick_grid_has_all_that_the_whole_one_has() -> None:
    some, whole = list(_some()), list(cells())
    for name in ("window", "matches", "kind", "asked", "source", "streams"):
        assert {getattr(cell, name) for cell in some} == {getattr(cell, name) for cell in whole}
    assert {cell.asked for cell in whole if cell.streams == 3} == {"count", "pairs"}
    assert any(cell[2:5] == ("int32", "count", "Arrow") for cell in some)  # which C counts, too


@pytest.mark.parametrize("begin", [0, 5, 25, 1_000])
def test_tuples_in_random_order_are_those_in_order_and_never_late(begin: int) -> None:
    wanted = _rows(begin, 40, None)
    came = np.concatenate([_rows(at, 10, 20)["ts"] for at in range(begin // 20 * 20, begin + 60, 10)])
    assert (np.maximum.accumulate(came) - came).max() < 20
    assert (np.diff(came) < 0).any()
    assert set(wanted["ts"].tolist()) <= set(came.tolist())
    some = _rows(begin, 40, 20)
    assert some["ts"].min() >= begin // 20 * 20
    whole = _rows(0, begin + 80, None)
    for name in ("k", "v"):
        assert some[name].tolist() == whole[name][some["ts"]].tolist()


@pytest.mark.parametrize("query", ["join", "group-by"])
def test_a_query_is_told_of_every_tuple_that_came_in_random_order(query: str) -> None:
    fed = _Fed(*BOUNDED[query], LATENESS)
    assert fed.push() > 0
    fed.up_to(40_000)
    assert [each.late for each in fed.standing.accounting.values()] == [0] * len(BOUNDED[query][0])
    assert fed.standing.outputs > 0
    fed.close()


def test_a_process_of_its_own_answers_as_often_as_it_is_asked() -> None:
    cell = Cell(60, 1.0, "int32", "count", "Arrow", 1_000)
    with _asker(cell) as one, _asker(cell) as other:
        assert _asked([one]) > 0.0
        assert _asked([one, other]) > 0.0
