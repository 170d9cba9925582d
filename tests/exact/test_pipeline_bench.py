"""The queries of `nile bench pipelines` answer what they say, whatever the scheduling."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from nile.exact.plan.algebra import Range
from nile.experiments.benchmarks.pipelines import join_group, ran, sales, select_sum
from nile.experiments.benchmarks.pushes import KINDS, spent


@pytest.mark.parametrize("scheduling", ["nta", "tpa"])
def test_select_and_sum_adds_up_the_last_window(scheduling: str) -> None:
    ts, rows = sales("s", 20_000, 1)
    window = 500_000
    pipeline = ran(select_sum(Range(window)), {"s": (ts, rows)}, scheduling)
    price = rows.column(1).to_numpy()
    held = (ts >= ts[-1] - window) & (price > 25.0)
    assert pipeline.snapshot().column("total").to_pylist() == [pytest.approx(price[held].sum(), rel=1e-12)]


@pytest.mark.parametrize("scheduling", ["nta", "tpa"])
@pytest.mark.parametrize("emit", ["changes", "snapshot"])
def test_join_and_group_by_counts_the_pairs_of_the_last_windows(scheduling: str, emit: str) -> None:
    streams = {side: sales(side, 30_000, seed) for seed, side in enumerate("ab")}
    window = 5_000_000
    found = ran(join_group(Range(window)), streams, scheduling, emit).snapshot()
    end = max(int(ts[-1]) for ts, _ in streams.values())
    items = [rows.column(0).filter(pa.array(ts >= end - window)) for ts, rows in streams.values()]
    counts = [dict(zip(*(each.to_pylist() for each in pc.value_counts(item).flatten()), strict=True)) for item in items]
    expected = {item: n * counts[1][item] for item, n in counts[0].items() if item in counts[1]}
    assert dict(zip(found["a.item"].to_pylist(), found["pairs"].to_pylist(), strict=True)) == expected
    assert np.array(list(expected.values())).sum() > 1000


@pytest.mark.parametrize("kind", KINDS)
def test_a_push_is_measured_with_every_kind_of_query(kind: str) -> None:
    (few,) = spent(kind, 1, rounds=1, pushes=2)
    assert few > 0.0
