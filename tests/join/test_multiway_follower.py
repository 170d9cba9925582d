"""The weighted join of n streams, whose rates follow what is granted: unbiased, at once and live."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from thinning import thinned
from workload_join import random_stream
from workload_multiway import brute_force

import nile
from nile.operators.inputs.joining import Loaded

SECOND = 1_000_000_000
WINDOW = 30


def _streams(keys: int) -> tuple[Loaded, ...]:
    rng = np.random.default_rng(keys)
    return tuple(random_stream(name, rng, 500, keys, gap=1) for name in "ABC")


def _table(stream: Loaded) -> pa.Table:
    return pa.table({"t": stream.ts.astype(float) / SECOND, "k": stream.key})


@pytest.mark.parametrize("budget", [0.05, pytest.param(0.2, marks=pytest.mark.long), 0.5])
@pytest.mark.parametrize("guide", ["directory", "countsketch"])
@pytest.mark.parametrize("keys", thinned([60, 6], 2))
def test_the_mean_total_is_the_truth(keys: int, guide: str, budget: float) -> None:
    streams = _streams(keys)
    truth = len(brute_force(streams, WINDOW * SECOND))
    totals = np.zeros(150)
    with nile.connect() as db:
        for stream in streams:
            db.register(stream.name, _table(stream), time="t")
        query = db.join("A", "B", "C", on="k", window=f"{WINDOW} s").prefer("weighted").guided_by(guide)
        for seed in range(totals.shape[0]):
            answer = query.using(seed=seed).run(budget)
            totals[seed] = answer.members().weight.sum() / truth
            assert answer.figures.spent <= answer.figures.granted * (1 + 1e-9)
    assert abs(totals.mean() - 1.0) <= 3.5 * totals.std(ddof=1) / math.sqrt(totals.shape[0]) + 2e-3


@pytest.mark.parametrize("budget", [0.05, pytest.param(0.2, marks=pytest.mark.long), 0.5])
@pytest.mark.parametrize("guide", ["directory", "countsketch"])
@pytest.mark.parametrize("keys", thinned([60, 6], 2))
def test_the_mean_total_of_range_records_is_the_truth(keys: int, guide: str, budget: float) -> None:
    """Combinations of records, each once and true, within the budget; what an interval claims holds."""
    streams = _streams(keys)
    exact = brute_force(streams, WINDOW * SECOND)
    truth, known = len(exact), set(exact)
    totals, held, claimed = np.zeros(80), 0, 0
    with nile.connect() as db:
        for stream in streams:
            db.register(stream.name, _table(stream), time="t")
        query = db.join("A", "B", "C", on="k", window=f"{WINDOW} s").prefer("weighted").guided_by(guide)
        for seed in range(totals.shape[0]):
            answer = query.returning("ranges").using(seed=seed).run(budget)
            members = answer.members()
            found = list(zip(*(one.tolist() for one in members.ordinal), strict=True))
            assert len(set(found)) == len(found)
            assert known.issuperset(found)
            totals[seed] = members.weight.sum() / truth
            assert answer.figures.spent <= answer.figures.granted * (1 + 1e-9)
            estimate = answer.estimate
            claimed += math.isfinite(estimate.high)
            held += math.isfinite(estimate.high) and estimate.low <= truth <= estimate.high
    assert abs(totals.mean() - 1.0) <= 3.5 * totals.std(ddof=1) / math.sqrt(totals.shape[0]) + 2e-3
    assert held >= 0.93 * claimed - 2.0 * math.sqrt(0.05 * claimed)
