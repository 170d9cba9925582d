"""Keys that asc notes as too frequent: the table says what the lists say, and spares looking them up."""

from __future__ import annotations

import numpy as np
import pytest
from workload_join import SECOND, joinable

from nile.experiments.benchmarks.truth.family import made
from nile.experiments.benchmarks.truth.truth import outliers
from nile.operators.common import start
from nile.operators.common.plan import JoinPlan, default_spec
from nile.operators.inputs.joining import Joinable
from nile.operators.join.join import PromisingJoin
from nile.preferences import state as st
from nile.preferences.budget import Budget
from nile.report.truth import exact_pairs
from nile.summaries.costs import CostTable

FREE = CostTable("free looks", 10, 0, 0, 0, 10, 0, 4, 6, 3, 0.15)
"""Looking costs nothing, in lists or in the table, so that who looks where decides nothing else."""


def run(joined: Joinable, budget: float, costs: CostTable = FREE) -> tuple[PromisingJoin, list[tuple[int, int]]]:
    plan = JoinPlan(
        window=joined.window, budget=Budget(budget), preference="asc", guide="directory", costs=costs,
        spec=default_spec(joined.window, ranking=False),
    )  # fmt: skip
    join = PromisingJoin(plan, joined.input(costs, ranges=False))
    return join, [pair for part in join.run() for pair in zip(part.left.tolist(), part.right.tolist(), strict=True)]


def inputs() -> list[Joinable]:
    random = [
        joinable(seed, n=900, keys=keys, window=window)
        for seed, (keys, window) in enumerate([(40, 60 * SECOND), (300, 400 * SECOND), (30, None), (5, 5 * SECOND)])
    ]
    return [
        *random,
        made("opposite skew", 900),
        made("drifting", 900),
        made("two scales", 900),
        made("tied times", 900),
    ]


@pytest.mark.parametrize("budget", [0.1, 0.25])
def test_the_table_says_what_the_lists_say(budget: float, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = 0
    for joined in inputs():
        with_table, pairs = run(joined, budget)
        noted += int(np.count_nonzero(with_table.state.heavy[:, 1] > -st.FOREVER))
        with monkeypatch.context() as patched:
            patched.setattr(start, "no_heavy", lambda _: np.zeros((0, 2), np.int64))
            without, others = run(joined, budget)
        assert without.state.heavy.shape == (0, 2)
        assert pairs == others
        assert with_table.figures == without.figures
    assert noted > 5


def test_no_key_is_noted_where_few_are_too_frequent() -> None:
    join, pairs = run(made("many keys", 900), 0.3)
    assert pairs
    assert (join.state.heavy[:, 1] == -st.FOREVER).all()


def test_heavy_keys_that_have_no_partners_do_not_use_up_the_budget() -> None:
    """Two thirds of the tuples are of keys too frequent to have an outlier."""
    joined = made("opposite skew", 4_000)
    exact = exact_pairs(joined)
    own, precision = outliers(joined, exact, 0.5, 3, preference="asc")
    others = [outliers(joined, exact, 0.5, 3, preference=preference)[0] for preference in ("desc", "weighted")]
    assert own >= max(0.99, *others)
    assert precision == 1.0
