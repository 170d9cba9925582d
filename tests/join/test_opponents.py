"""Opponents: exact when granted what their way of working needs, honest under a budget, the same every time."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_join import SECOND, assert_honest, brute_force, joinable, records, run, stream

from nile.operators.common.plan import JoinPlan, told_preference
from nile.operators.inputs.joining import Joinable
from nile.operators.join.runners import kept_share, runner_of
from nile.operators.opponents.hash_kernels import SIZE, STACK_FIELDS, TIME
from nile.preferences.budget import Budget
from nile.preferences.clock import Pace
from nile.pyramid.grid.spec import SummarySpec
from nile.summaries.costs import ENGINE, MEMORY, CostTable
from nile.summaries.errors import ConfigError

NEW = ("paper", "hash-backlog", "scan", "hash-buckets", "shed-uniform", "hash-keys")
HASHING = ("hash-drop", "hash-backlog", "shed-uniform", "hash-keys")
WINDOW = 120 * SECOND


def plan_of(method: str, fraction: float, joined: Joinable, **options: Any) -> JoinPlan:
    window = joined.window
    spec = SummarySpec(
        granularity=50 * SECOND if window is None else max(1, window // 4), columns=16, max_zones=4,
        buckets=options.pop("buckets", 4), forgetting=options.pop("forgetting", False),
    )  # fmt: skip
    return JoinPlan(window=window, budget=Budget(fraction), method=method, spec=spec, **options)


# --- with enough credit -----------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [0, 7 * SECOND, WINDOW, None])
@pytest.mark.parametrize("method", HASHING)
@pytest.mark.parametrize("costs", [ENGINE, MEMORY])
def test_a_hash_join_at_fraction_one_is_exact(method: str, window: int | None, costs: CostTable) -> None:
    """Inserting, looking up and emitting is what the exact answer costs: not a unit more is needed."""
    joined = joinable(1, n=500, keys=25, window=window)
    for output in ("pairs", "ranges"):
        plan = plan_of(method, 1.0, joined, costs=costs, output=output)
        found, join = run(plan, joined)
        assert set(found) == brute_force(joined)
        assert len(found) == len(set(found))
        assert join.figures.spent <= join.figures.granted * (1 + 1e-9)


@pytest.mark.parametrize("replay", ["none", "exponential", "data"])
@pytest.mark.parametrize("method", [*NEW, "hash-drop"])
def test_every_method_is_exact_when_granted_as_much_as_it_needs(method: str, replay: str) -> None:
    """Scanning 300 tuples per output takes far more than fraction 1; so do ties under a replay, which grant nothing."""
    joined = joinable(2, n=500, keys=25, window=WINDOW, replay=replay)
    plan = plan_of(method, 1e5, joined, pace=Pace(replay, SECOND))
    found, join = run(plan, joined)
    if replay == "data" and method in ("scan", "hash-buckets", "hash-drop"):
        assert set(found) <= brute_force(joined)  # of tuples with one time, each drops what the one before left
    else:
        missing = brute_force(joined) - set(found)
        last = {(len(joined.left) - 1, 0), (len(joined.right) - 1, 1)}
        assert all((i, 0) in last or (j, 1) in last for i, j in missing)  # a replay grants nothing after the input
    assert_honest(plan, joined, found, join)


def test_a_hash_join_scans_less_the_more_buckets_it_has() -> None:
    """A look-up and a scan of a bucket a tuple: with one bucket of the window."""
    joined = joinable(3, n=1_000, keys=50, window=WINDOW)
    scanned = {}
    for buckets in (1, 4, 64, 4_096):
        found, join = run(plan_of("hash-buckets", 1e3, joined, buckets=buckets), joined)
        assert len(found) == joined.pairs
        taking = (ENGINE.insert + (ENGINE.lookup if buckets > 1 else 0)) * join.figures.admitted
        scanned[buckets] = join.figures.spent - taking - ENGINE.emit * joined.pairs
    _, scan = run(plan_of("scan", 1e3, joined), joined)
    assert scanned[1] == scan.figures.spent - ENGINE.insert * scan.figures.admitted - ENGINE.emit * joined.pairs
    assert scanned[1] > 3.0 * scanned[4] > 9.0 * scanned[64]
    assert scanned[64] >= scanned[4_096] >= ENGINE.scan * joined.pairs
    shares = [
        len(run(plan_of("hash-buckets", 0.7, joined, buckets=buckets), joined)[0]) for buckets in (1, 4, 64, 4_096)
    ]
    assert shares == sorted(shares)


def test_scan_needs_far_more_than_hashing() -> None:
    joined = joinable(3, n=1_000, keys=50, window=WINDOW)
    shares = {f: len(run(plan_of("scan", f, joined), joined)[0]) / joined.pairs for f in (1.0, 3.0, 1e3)}
    assert shares[1.0] < 0.6
    assert shares[1.0] < shares[3.0]
    assert shares[1e3] == 1.0


# --- under a budget ---------------------------------------------------------------------------------------

MATRIX = [
    (method, output, replay, costs, forgetting)
    for method, output, replay, costs, forgetting in itertools.product(
        NEW, ("pairs", "ranges"), ("none", "exponential", "data"), (ENGINE, MEMORY), (False, True)
    )
    if not (output == "ranges" and method in ("paper", "scan", "hash-buckets"))
]


@pytest.mark.parametrize(("method", "output", "replay", "costs", "forgetting"), MATRIX)
def test_every_method_runs_every_way_and_stays_honest(
    method: str, output: str, replay: str, costs: CostTable, forgetting: bool
) -> None:
    joined = joinable(4, n=400, keys=20, window=WINDOW, replay=replay)
    for fraction in (0.05, 0.4, 2.0):
        plan = plan_of(
            method, fraction, joined, output=output, pace=Pace(replay, SECOND), costs=costs, forgetting=forgetting,
            waiting=8,
        )  # fmt: skip
        found, join = run(plan, joined)
        assert_honest(plan, joined, found, join)
        assert records(plan, joined, batch_rows=37) == records(plan, joined, batch_rows=65_536)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32), n=st.integers(0, 50), keys=st.integers(1, 9), window=st.integers(0, 60),
    method=st.sampled_from(["hash-backlog", "scan", "hash-buckets", "shed-uniform", "hash-keys"]),
    fraction=st.sampled_from([0.1, 0.5, 0.9, 4.0]),
    replay=st.sampled_from(["none", "data"]), rows=st.integers(1, 60),
)  # fmt: skip
def test_opponents_are_honest_on_any_small_input(
    seed: int, n: int, keys: int, window: int, method: str, fraction: float, replay: str, rows: int
) -> None:
    joined = joinable(seed, n=n, keys=keys, window=window * SECOND)
    plan = plan_of(method, fraction, joined, pace=Pace(replay), waiting=3, seed=seed)
    found, join = run(plan, joined, batch_rows=rows)
    assert_honest(plan, joined, found, join)


@pytest.mark.parametrize("method", ["paper", "scan", "hash-buckets"])
def test_what_scans_has_no_ranges_and_says_so(method: str) -> None:
    with pytest.raises(ConfigError, match=f"needed 'pairs' with method '{method}'.*got 'ranges'"):
        JoinPlan(window=None, budget=Budget(0.5), method=method, output="ranges")


# --- each opponent's own way ------------------------------------------------------------------------------


def test_hash_backlog_takes_up_the_newest_unfinished_probe_first() -> None:
    """Engine prices: 20 to come in, 10 an output, 10 to resume, 20 kept back for the next arrival.

    Five right tuples of each key k = 1, 2 come first.  Left: key 1 grants 40, so 2 of 5; key 2 likewise; the
    null key grants 70: it may spend 50 of them.  Resuming key 2, the newest, costs 10, its 3 outputs 30; the
    10 that are left above the reserve do not resume key 1 and emit.
    """
    right = stream("right", [0] * 10, [1, 2] * 5)
    left = stream("left", [1, 2, 3, 4], [1, 2, None, None])
    joined = Joinable(left, right, 100 * SECOND)
    found, join = run_with(joined, "hash-backlog", [20.0] * 10 + [40.0, 40.0, 70.0, 0.0])
    assert found == [(0, 0), (0, 2), (1, 1), (1, 3), (1, 5), (1, 7), (1, 9)]
    found, join = run_with(joined, "hash-backlog", [20.0] * 10 + [40.0, 40.0, 70.0, 30.0])
    assert found[7:] == [(0, 4), (0, 6), (0, 8)]
    assert join.figures.granted - join.figures.spent == 20.0


def test_hash_backlog_drops_a_probe_whose_window_has_passed() -> None:
    right = stream("right", [0] * 5, [1] * 5)
    left = stream("left", [1, 200], [1, None])
    joined = Joinable(left, right, 100 * SECOND)
    found, join = run_with(joined, "hash-backlog", [20.0] * 5 + [30.0, 500.0])
    assert found == [(0, 0)]
    assert join.figures.expired == 1


def test_hash_drop_has_lost_what_hash_backlog_finds_later() -> None:
    right = stream("right", [0] * 5, [1] * 5)
    left = stream("left", [1, 2], [1, None])
    joined = Joinable(left, right, 100 * SECOND)
    granted = [20.0] * 5 + [30.0, 500.0]
    assert len(run_with(joined, "hash-drop", granted)[0]) == 1
    assert len(run_with(joined, "hash-backlog", granted)[0]) == 5


def test_scan_looks_at_the_window_in_arrival_order_and_drops_the_rest() -> None:
    """20 tuples: insert 10, then 2 a tuple looked at and 10 an output.  12 + 2 + 12 = 26 of 36: the next needs 12."""
    right = stream("right", [0, 1, 2, 3], [1, 2, 1, 1])
    left = stream("left", [4, 5], [1, 2])
    joined = Joinable(left, right, 100 * SECOND)
    found, join = run_with(joined, "scan", [10.0] * 4 + [45.0, 10.0])
    assert found == [(0, 0), (0, 2), (1, 1)][: len(found)]
    assert found[:2] == [(0, 0), (0, 2)]
    assert (0, 3) not in found
    assert join.figures.spent_insert == 60.0


def run_with(joined: Joinable, method: str, granted: list[float]) -> Any:
    """Run with grants given by hand, one per arrival."""
    plan = plan_of(method, 1.0, joined)
    data = joined.input(plan.costs, ranges=False)
    return run(plan, _Granting(joined, data, np.array(granted)))  # type: ignore[arg-type]


class _Granting:
    """A Joinable whose exact costs, and so grants at fraction 1, are given."""

    def __init__(self, joined: Joinable, data: Any, granted: Any) -> None:
        self._data = type(data)(**{**{n: getattr(data, n) for n in data.__dataclass_fields__}, "costs": granted})
        self.left, self.right, self.window = joined.left, joined.right, joined.window

    def input(self, costs: CostTable, *, ranges: bool) -> Any:
        assert costs is ENGINE
        assert not ranges
        return self._data


def test_shed_uniform_sheds_both_streams_alike_whatever_the_key() -> None:
    joined = joinable(6, n=4_000, keys=40, window=WINDOW)
    plan = plan_of("shed-uniform", 0.3, joined, seed=5)
    _, join = run(plan, joined)
    figures = join.figures
    keyed = figures.arrivals - figures.nulls
    share = figures.admitted / keyed
    assert abs(share - figures.admission) < 0.05  # 7,600 draws: five standard deviations are 0.03
    assert abs(figures.shed[0] - figures.shed[1]) < 0.05 * keyed
    assert figures.spent > 0.8 * figures.granted


def test_shed_uniform_is_seeded() -> None:
    joined = joinable(7, n=600, keys=10, window=WINDOW)
    one, again, two = (run(plan_of("shed-uniform", 0.3, joined, seed=seed), joined)[0] for seed in (1, 1, 2))
    assert one == again
    assert one != two


def test_the_share_kept_costs_what_is_granted() -> None:
    """20 p + 30 p^2 = f * 50: at f = 0.16 that is p = 0.28 (5.6 + 2.352 = 7.952, about 8)."""
    joined = joinable(1, n=10, keys=3, window=WINDOW)
    costs = np.full(100, 50.0)
    for fraction in (0.01, 0.16, 0.5, 0.99):
        p = kept_share(plan_of("shed-uniform", fraction, joined), costs)
        assert 20 * p + 30 * p * p == pytest.approx(fraction * 50)
    assert kept_share(plan_of("shed-uniform", 0.16, joined), costs) == pytest.approx(0.28, abs=0.01)
    assert kept_share(plan_of("shed-uniform", 1.0, joined), costs) == 1.0
    assert kept_share(plan_of("shed-uniform", 0.5, joined, output="ranges"), costs) == 0.5
    assert kept_share(plan_of("shed-uniform", 0.5, joined), np.zeros(0)) == 1.0


def test_a_full_backlog_drops_what_has_expired_before_it_grows() -> None:
    joined = joinable(1, n=10, keys=3, window=WINDOW)
    plan = plan_of("hash-backlog", 1.0, joined)
    _, join = run(plan, joined)
    runner: Any = runner_of(plan, join.stores, join.state, join.data, np.zeros(1))
    stack = runner._stack
    n = stack.entry.shape[0]
    stack.entry[:, TIME] = np.arange(n) * SECOND
    stack.control[SIZE] = n
    join.state.whole[27] = (n - 11) * SECOND + WINDOW  # NOW_TS: all but eleven have expired
    runner.grow(join.state)
    assert runner._stack.control[SIZE] == 11
    assert runner._stack.entry.shape == (n, STACK_FIELDS)
    runner._stack.entry[:, TIME] = 2 * n * SECOND
    runner._stack.control[SIZE] = n
    runner.grow(join.state)
    assert runner._stack.entry.shape == (2 * n, STACK_FIELDS)
    assert runner._stack.control[SIZE] == n


# --- what an outlier is -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", HASHING)
def test_under_asc_opponents_that_hash_emit_what_their_lists_call_outliers(method: str) -> None:
    """Granted all, what nile finds; granted little, more of them than where everything is emitted."""
    joined = joinable(4, n=600, keys=150, window=WINDOW)
    every = brute_force(joined)
    outliers, _ = run(plan_of("nile", 1.0, joined, preference="asc"), joined)
    found, _ = run(plan_of(method, 1.0, joined, preference="asc"), joined)
    assert set(found) == set(outliers)
    assert 0 < len(found) < len(every)
    told, _ = run(plan_of(method, 0.4, joined, preference="asc"), joined)
    untold, _ = run(plan_of(method, 0.4, joined), joined)
    assert len(set(told) & set(outliers)) >= len(set(untold) & set(outliers)) > 0


def test_of_preferences_an_opponent_is_told_the_cap_of_outliers_alone() -> None:
    assert [told_preference("hash-drop", one) for one in ("desc", "weighted", "asc")] == ["desc", "desc", "asc"]
    assert [told_preference("paper", one) for one in ("desc", "weighted", "asc")] == ["desc", "weighted", "asc"]
