"""Benchmarks of standing joins: parts and executors of Spark are asked what the one beside them is; so are guides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nile.experiments.benchmarks.standing import cluster
from nile.experiments.benchmarks.standing import parts as bench
from nile.experiments.benchmarks.summaries.guides import Sizes, measured


def test_parts_are_told_everything_and_all_of_the_budget_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "TUPLES", 400)
    monkeypatch.setattr(bench, "BATCH", 150)
    tables = bench.streams(20, 1.0)
    text = bench._TEXT.format("WITH PREFERENCE desc a.k", "4 s")
    query = bench.asked(text, tables, {}, 3)
    told = list(bench.dealt(query, tables))
    for name in tables:
        assert sum(mine[name].num_rows for parts in told for mine, _, _ in parts if name in mine) == 400
    # Of both streams every part is told how far they have come, and what was counted.
    assert all(len(reached) == len(counts) == 2 for parts in told for _, reached, counts in parts)
    found, spent = bench.in_parts(text, tables, 1.0, 3)
    alone = bench.one(text, tables, 1.0)
    assert found.num_rows == alone.num_rows > 0
    assert bench.histogram_errors(alone, found, 20, "4 s") == (0.0, 0.0)
    few = alone.slice(0, 5)
    shares = np.bincount(bench.binned(alone, 20, "4 s")[1], minlength=100) / alone.num_rows
    drawn = np.bincount(bench.binned(few, 20, "4 s")[1], minlength=100) / 5
    assert bench.histogram_errors(alone, few, 20, "4 s")[1] == pytest.approx(float(((shares - drawn) ** 2).sum()))
    assert spent == pytest.approx(1.0)


@pytest.mark.long
def test_executors_tell_all_pairs_and_what_they_spent(tmp_path: Path) -> None:
    cluster.write(tmp_path, batches=3, tuples=200)
    (rows, wall, busiest), (again, _, none) = (
        cluster.apart(tmp_path, master, parts, 1) for master, parts in (("local-cluster[2,1,1024]", 2), (None, 1))
    )
    assert rows == again > 0
    assert wall > 0
    assert busiest > 0 == none  # without a cluster there are no executors


def test_guides_are_compared_by_queries_that_share_a_summary_and_by_keys() -> None:
    sizes = Sizes(queries=(1, 3), keys=(50, 5_000), tuples=300, kept=60_000, streams=("zipf 1",))
    result = measured(sizes)
    standing = [row for row in result.rows if "queries" in row]
    assert [row["queries"] for row in standing] == [1, 3]
    assert all(0.0 < row["directory"] <= 1.0 and 0.0 <= row["countsketch"] <= 1.0 for row in standing)
    few, many = (row for row in result.rows if "keys" in row)
    assert few["directory_bytes"] < many["directory_bytes"]
    assert few["sketch_bytes"] == many["sketch_bytes"] == 16 * 1_024
    assert many["most"] >= 0.95
    assert {each.name.split(":")[0] for each in result.measures} >= {"1 standing queries", "50 keys", "5,000 keys"}
