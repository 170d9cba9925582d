"""`hash-keys`: the exact pairs of keys chosen by their hash, whole, for what is granted, each weighed by 1 / p."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from workload_join import SECOND, brute_force, joinable, run, stream

from nile.operators.common.plan import JoinPlan, told_preference
from nile.operators.inputs.joining import Joinable
from nile.operators.join.join import PromisingJoin
from nile.operators.opponents.hashed_keys import chosen_keys
from nile.preferences import state as js
from nile.preferences.budget import Budget
from nile.preferences.preference import PREFERENCES

WINDOW = 120 * SECOND
SEEDS = 500


def plan_of(fraction: float, joined: Joinable, seed: int = 0, **options: Any) -> JoinPlan:
    return JoinPlan(window=joined.window, budget=Budget(fraction), method="hash-keys", seed=seed, **options)


def unit(value: int, seed: int) -> float:
    """The twin of `arrival_kernels.unit`: the splitmix64 finaliser of value + seed, in [0, 1)."""
    z = (int(value) + seed) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return float((z ^ (z >> 31)) >> 11) * 2.0**-53


def key_costs(plan: JoinPlan, joined: Joinable) -> dict[int, float]:
    """What the exact answer spends on each key: taking in its tuples, and its pairs."""
    tuples = Counter(key for side in joined.streams for key in side.key.to_pylist() if key is not None)
    keys = joined.left.key.to_pylist()
    pairs = Counter(keys[i] for i, _ in brute_force(joined))
    taking = plan.costs.insert + plan.costs.lookup
    return {key: n * taking + pairs[key] * plan.costs.emit for key, n in tuples.items()}


@pytest.mark.parametrize("preference", PREFERENCES)
@pytest.mark.parametrize("fraction", [0.02, 0.1, 0.4])
def test_whole_keys_are_joined_for_no_more_than_is_granted(fraction: float, preference: str) -> None:
    joined = joinable(3, n=800, keys=60, window=WINDOW)
    exact = brute_force(joined)
    keys = joined.left.key.to_pylist()
    if preference == "asc":
        exact = set(run(JoinPlan(window=WINDOW, budget=Budget(1.0), preference="asc"), joined)[0])
    for seed in range(5):
        plan = plan_of(fraction, joined, seed, preference=preference)
        found, join = run(plan, joined)
        taken = {keys[i] for i, _ in found}
        assert set(found) == {(i, j) for i, j in exact if keys[i] in taken}
        figures = join.figures
        assert figures.spent <= figures.granted == pytest.approx(fraction * figures.exact_cost)
        if preference != "asc":
            assert figures.spent_hit + figures.spent_insert == pytest.approx(figures.spent)


def test_under_desc_no_key_that_was_left_out_still_fits() -> None:
    joined = joinable(3, n=800, keys=60, window=WINDOW)
    for seed in range(5):
        plan = plan_of(0.2, joined, seed)
        costs = key_costs(plan, joined)
        found, join = run(plan, joined)
        taken = {joined.left.key[i].as_py() for i, _ in found}
        lone = {key for key in costs if not any(joined.left.key[i].as_py() == key for i, _ in brute_force(joined))}
        left = join.figures.granted - join.figures.spent
        assert all(cost > left for key, cost in costs.items() if key not in taken | lone)


def test_keys_are_taken_in_the_order_of_their_hashes_until_one_does_not_fit() -> None:
    """The order is `unit`'s, one key at a time; what costs more than the grant by itself is passed over."""
    joined = joinable(4, n=600, keys=40, window=WINDOW)
    for seed in range(8):
        plan = plan_of(0.15, joined, seed, preference="weighted")
        data = joined.input(plan.costs, ranges=False)
        salt = int(PromisingJoin(plan, data).state.setting[js.SALT])
        chosen, weight = chosen_keys(plan, data, salt)
        hashes = {int(c): h for side in (data.left, data.right) for c, h in zip(side.codes, side.hashes, strict=True)}
        codes = np.empty(data.order.shape[0], np.int64)
        codes[data.order == 0], codes[data.order == 1] = data.left.codes, data.right.codes
        cost = {code: float(data.costs[codes == code].sum()) for code in hashes if code >= 0}
        left = grant = 0.15 * float(data.costs.sum())
        expected, share = set(), 1.0
        for code in sorted(cost, key=lambda one: unit(hashes[one], salt)):
            if cost[code] > grant:
                continue
            if cost[code] > left:
                share = unit(hashes[code], salt)
                break
            left -= cost[code]
            expected.add(code)
        assert set(np.flatnonzero(chosen).tolist()) == expected
        assert weight == pytest.approx(1.0 / share)


def test_the_weights_of_a_sample_of_keys_add_up_to_the_truth_in_the_mean() -> None:
    """Over 500 seeds, within three standard errors; keys are uneven and none costs more than the grant."""
    rng = np.random.default_rng(5)
    keys = [np.where(rng.random(600) < 0.3, rng.integers(0, 6, 600), rng.integers(6, 60, 600)) for _ in range(2)]
    left, right = (stream(name, range(600), own.tolist()) for name, own in zip(("a", "b"), keys, strict=True))
    joined = Joinable(left, right, 60 * SECOND)
    exact = len(brute_force(joined))
    told = []
    for seed in range(SEEDS):
        plan = plan_of(0.2, joined, seed, preference="weighted")
        join = PromisingJoin(plan, joined.input(plan.costs, ranges=False))
        told.append(sum(float(out.weight.sum()) for out in join.run()))
    assert max(key_costs(plan, joined).values()) < 0.2 * join.figures.exact_cost
    assert abs(np.mean(told) - exact) < 3.0 * np.std(told) / SEEDS**0.5


def test_a_key_that_costs_more_than_the_grant_is_passed_over() -> None:
    """Key 0 has 100 tuples on either side, each of the others one: at a tenth the others are taken, never it."""
    keys = [0] * 100 + list(range(1, 21))
    joined = Joinable(stream("a", range(120), keys), stream("b", range(120), keys), None)
    for preference in ("desc", "weighted"):
        found, _ = run(plan_of(0.1, joined, preference=preference), joined)
        assert sorted(found) == [(i, i) for i in range(100, 120)]


def test_it_is_told_the_preference_that_others_follow() -> None:
    assert [told_preference("hash-keys", one) for one in PREFERENCES] == list(PREFERENCES)
