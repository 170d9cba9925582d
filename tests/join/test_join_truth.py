"""The promising join against brute force: whatever the plan, nothing false, nothing unpaid, nothing lost."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from thinning import rounds
from workload_join import SECOND, assert_honest, brute_force, joinable, records, run, stream

from nile.experiments.benchmarks.streams import WINDOW_TUPLES, workload
from nile.operators.common import plan as plans
from nile.operators.common.plan import JoinPlan
from nile.operators.drive.key_levels import pair_sample
from nile.operators.inputs.joining import Joinable
from nile.operators.join.join import PromisingJoin
from nile.preferences import state
from nile.preferences.budget import Budget
from nile.preferences.clock import Pace
from nile.pyramid.grid.spec import SummarySpec
from nile.summaries.costs import ENGINE, MEMORY

WINDOW = 60 * SECOND


def plan_of(joined: Joinable, fraction: float, **options: Any) -> JoinPlan:
    """A nile plan over small sketches, so that zones turn and estimates err."""
    window = joined.window
    summary = {"buckets": 4, "columns": 8, "max_zones": 4, "rate": 2, **options.pop("summary", {})}
    granularity = 40 * SECOND if window is None else max(1, window // 4)
    spec = SummarySpec(granularity=granularity, **summary)
    return JoinPlan(window=window, budget=Budget(fraction), spec=spec, **options)


def outliers(joined: Joinable, cap: int) -> set[tuple[int, int]]:
    """Pairs whose key has at most `cap` tuples, of order up to the later one and inside its window, by looking."""
    window = np.iinfo(np.int64).max if joined.window is None else joined.window
    merged = sorted(
        [(int(ts), side, i, key) for side, one in enumerate((joined.left, joined.right))
         for i, (ts, key) in enumerate(zip(one.ts, one.key.to_pylist(), strict=True))],
        key=lambda row: row[:3],
    )  # fmt: skip
    place = {(side, i): n for n, (_, side, i, _) in enumerate(merged)}

    @cache
    def like_it(last: int) -> int:
        ts, _, _, key = merged[last]
        return sum(1 for row in merged[: last + 1] if row[3] == key and ts - row[0] <= window)

    return {(i, j) for i, j in brute_force(joined) if like_it(max(place[0, i], place[1, j])) <= cap}


@pytest.mark.parametrize("window", [0, 3 * SECOND, WINDOW, None])
@pytest.mark.parametrize("guide", plans.GUIDES)
@pytest.mark.parametrize("costs", [ENGINE, MEMORY])
def test_a_full_budget_gives_the_whole_answer_and_asc_just_the_outliers(
    guide: str, window: int | None, costs: Any
) -> None:
    joined = joinable(4, n=400, keys=120, window=window)
    for preference, output in itertools.product(("desc", "weighted", "asc"), plans.OUTPUTS):
        plan = plan_of(joined, 1.0, guide=guide, preference=preference, output=output, costs=costs, outlier_cap=4)
        found, join = run(plan, joined)
        assert_honest(plan, joined, found, join)
        assert set(found) == (outliers(joined, 4) if preference == "asc" else brute_force(joined))


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.sampled_from([0, 1, 30, 300, 900]),
    keys=st.sampled_from([1, 5, 60, 2_000]),
    window=st.sampled_from([0, SECOND, WINDOW, None]),
    fraction=st.sampled_from([0.02, 0.1, 0.4, 0.9, 3.0]),
    guide=st.sampled_from(plans.GUIDES),
    preference=st.sampled_from(["desc", "weighted", "asc"]),
    output=st.sampled_from(plans.OUTPUTS),
    costs=st.sampled_from([ENGINE, MEMORY]),
    replay=st.sampled_from(["none", "exponential", "data"]),
    structure=st.sampled_from(["T1", "T2", "T3", "T4"]),
    forgetting=st.booleans(),
    fade=st.sampled_from([1.0, 0.5]),
)
@example(
    seed=1, n=900, keys=60, window=None, fraction=0.4, guide="countsketch", preference="asc", output="pairs",
    costs=ENGINE, replay="none", structure="T2", forgetting=True, fade=1.0,
)  # fmt: skip
@settings(max_examples=120)
def test_no_plan_makes_a_false_or_an_unpaid_pair(
    seed: int, n: int, keys: int, window: int | None, fraction: float, guide: str, preference: str, output: str,
    costs: Any, replay: str, structure: str, forgetting: bool, fade: float,
) -> None:  # fmt: skip
    joined = joinable(seed, n=n, keys=keys, window=window, replay=replay)
    guide = "directory" if structure == "T1" else guide  # T1 keeps no summary to ask
    plan = plan_of(
        joined, fraction, guide=guide, preference=preference, output=output, costs=costs, pace=Pace(replay, SECOND),
        fade=plans.Fade(fade), seed=seed % 1000, summary={"structure": structure, "forgetting": forgetting},
    )  # fmt: skip
    found, join = run(plan, joined, batch_rows=197)
    figures = join.figures
    if preference == "asc":
        assert len(found) == len(set(found))
        assert set(found) <= outliers(joined, plan.outlier_cap)
        assert figures.spent <= figures.granted * (1 + 1e-9)
    else:
        assert_honest(plan, joined, found, join)
    assert all(weight >= 1.0 for weight in (row[2] for row in records(plan, joined, batch_rows=10_000)))


@pytest.mark.parametrize("guide", plans.GUIDES)
def test_slots_that_open_and_shut_give_asc_no_false_outlier(guide: str) -> None:
    """In short windows it picks slots; keys that are busy for a while were turned away when a slot opened for them."""
    rng = np.random.Generator(np.random.PCG64(8))
    times = np.sort(rng.integers(0, 1_200, (2, 2_400)), axis=1)
    busy = times // 12
    drifting = np.where(rng.random(times.shape) < 0.9, rng.integers(1_000, 4_000, times.shape), busy)
    sides = [stream(str(side), times[side], drifting[side].tolist()) for side in (0, 1)]
    joined = Joinable(sides[0], sides[1], 40 * SECOND)
    truth = outliers(joined, 4)
    chosen = 0
    for fraction, seed in itertools.product((0.03, 0.1, 0.3, 0.6), range(4)):
        plan = plan_of(joined, fraction, guide=guide, preference="asc", outlier_cap=4, seed=seed)
        found, join = run(plan, joined, batch_rows=197)
        assert len(found) == len(set(found))
        assert set(found) <= truth
        assert join.figures.spent <= join.figures.granted * (1 + 1e-9)
        chosen += int(join.state.whole[state.CHOSEN] > 0)
    assert chosen >= 8


def test_forgetting_never_gives_a_pair_with_a_forgotten_side_and_lowers_coverage() -> None:
    joined = joinable(31, n=6_000, keys=6, window=2_000 * SECOND)
    summary = {"forgetting": True, "depth": 2, "max_length": 50 * SECOND}
    plan = plan_of(joined, 0.4, summary={**summary, "buckets": 2})
    plan = plans.JoinPlan(**{**_fields(plan), "spec": SummarySpec(granularity=100 * SECOND, rate=2, **summary)})
    found, join = run(plan, joined)
    assert_honest(plan, joined, found, join)
    assert join.figures.forgotten > 0
    assert join.figures.coverage < 1.0


def test_a_stream_much_longer_than_its_window_keeps_lists_and_sketches_small() -> None:
    joined = joinable(41, n=30_000, keys=50, window=10 * SECOND)
    plan = plan_of(joined, 0.8)
    join = PromisingJoin(plan, joined.input(ENGINE, ranges=False), batch_rows=512)
    sketches = join.memory.sketches
    peak = 0
    for _ in join.run():
        peak = max(peak, join.memory.tuples)
    assert join.memory.sketches == sketches
    assert peak < 2_000_000


def test_one_side_empty_all_null_or_all_equal_is_no_special_case() -> None:
    none = stream("none", [], [])
    nulls = stream("nulls", range(50), [None] * 50)
    equal = stream("equal", [0] * 40, [7] * 40)
    for left, right in itertools.product((none, nulls, equal), repeat=2):
        joined = Joinable(left, right, WINDOW)
        for guide, preference in itertools.product(plans.GUIDES, ("desc", "weighted", "asc")):
            plan = plan_of(joined, 0.5, guide=guide, preference=preference)
            found, join = run(plan, joined)
            assert set(found) <= brute_force(joined)
            assert join.figures.arrivals == len(left) + len(right)


STANDARD_ERRORS = 3.0
STILL_WAITING = 0.03
"""Share of the tuples that may wait, on average, when the input ends: their pairs are lost without a weight."""


@pytest.mark.parametrize("seeds", rounds(200))
@pytest.mark.parametrize("guide", plans.GUIDES)
def test_deep_overload_drops_by_key_hash_and_stays_unbiased(guide: str, seeds: int) -> None:
    """0.5 % selectivity, 2 % budget: taking every tuple in would cost three times the grant, or more."""
    one = workload(0.005, 0, tuples=2 * WINDOW_TUPLES)
    data = one.joined.input(ENGINE, ranges=False)
    totals, waiting = [], []
    for seed in range(seeds):
        join = PromisingJoin(plan_of(one.joined, 0.02, guide=guide, preference="weighted", seed=seed), data)
        totals.append(sum(float(out.weight.sum()) for out in join.run()))
        waiting.append(int(join.state.whole[state.ARRIVED] - join.state.whole[state.APPLIED]))
        assert join.figures.admission < 0.9
    error = np.std(totals, ddof=1) / np.sqrt(len(totals))
    assert abs(np.mean(totals) - one.joined.pairs) <= STANDARD_ERRORS * error
    assert np.mean(waiting) <= STILL_WAITING * data.order.shape[0]


COVERED = 0.85
"""Of 95 % claimed: a sample of few keys, most of which miss the heaviest, cannot show how heavy those are."""


@pytest.mark.parametrize("guide", plans.GUIDES)
def test_intervals_of_weighted_joins_cover_the_exact_answer_when_keys_are_dropped(guide: str) -> None:
    """0.5 % selectivity, 5 % budget: a third to two thirds of the keys, or of the tuples, come in."""
    one = workload(0.005, 0, tuples=2 * WINDOW_TUPLES)
    data = one.joined.input(ENGINE, ranges=False)
    covered = dropped = 0
    for seed in range(200):
        join = PromisingJoin(plan_of(one.joined, 0.05, guide=guide, preference="weighted", seed=seed), data)
        sample = pair_sample(join, list(join.run()))
        told = sample.count(np.ones(sample.weight.shape[0]), 0.95)
        covered += bool(told.covers(one.joined.pairs))
        dropped += sum(join.shed) > 0
        assert sample.weight.shape[0] <= told.low <= told.value <= told.high
        assert not told.certified
    assert dropped >= 190
    assert covered >= COVERED * 200


@pytest.mark.parametrize("guide", plans.GUIDES)
def test_intervals_stay_narrow_and_cover_when_every_key_comes_in(guide: str) -> None:
    one = workload(0.005, 0, tuples=2 * WINDOW_TUPLES)
    data = one.joined.input(ENGINE, ranges=False)
    covered = 0
    for seed in range(40):
        join = PromisingJoin(plan_of(one.joined, 0.2, guide=guide, preference="weighted", seed=seed), data)
        sample = pair_sample(join, list(join.run()))
        told = sample.count(np.ones(sample.weight.shape[0]), 0.95)
        assert not sample.drops_keys
        assert told.relative_error <= 0.02
        covered += bool(told.covers(one.joined.pairs))
    assert covered >= 38


def _fields(plan: JoinPlan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in plan.__dataclass_fields__}
