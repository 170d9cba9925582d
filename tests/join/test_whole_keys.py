"""Keys that are joined whole for what is granted: by their hash (`hash-keys`), and the best first (as planned)."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from workload_join import SECOND, brute_force, joinable, run, stream

from nile.experiments.benchmarks.truth.family import made
from nile.operators.common.plan import JoinPlan, told_preference
from nile.operators.inputs.joining import Joinable
from nile.operators.join.join import PromisingJoin
from nile.operators.join.planned import Planned, is_planned, plans_ahead
from nile.operators.opponents.hashed_keys import chosen_keys
from nile.preferences import state as js
from nile.preferences.best_first import Seen, completed, expected_of, likely_outliers, matches_before, ranked
from nile.preferences.budget import Budget
from nile.preferences.fade import Fade
from nile.preferences.preference import PREFERENCES
from nile.summaries.costs import ENGINE, MACHINE, MEMORY, CostTable

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


# --- the best first ----------------------------------------------------------------------------------------


def best_first(joined: Joinable, fraction: float, seed: int = 0, **options: Any) -> PromisingJoin:
    plan = JoinPlan(window=joined.window, budget=Budget(fraction), guide="directory", seed=seed, **options)
    return PromisingJoin(plan, joined.input(plan.costs, ranges=False), ahead=True)


@pytest.fixture
def asc_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """asc is planned over few tuples of few keys, too."""
    monkeypatch.setattr("nile.operators.join.planned._LEAST_KEYS", 0)


def uneven(seed: int, window: int | None, n: int = 700) -> Joinable:
    """A dozen keys, some with ten times the tuples of others, and not in both streams alike."""
    rng = np.random.default_rng(seed)
    sides = []
    for name in ("a", "b"):
        weights = rng.random(12) ** 3 + 0.02
        sides.append(stream(name, np.sort(rng.integers(0, 900, n)), rng.choice(12, n, p=weights / weights.sum())))
    return Joinable(sides[0], sides[1], window)


def found_by(join: PromisingJoin) -> list[tuple[int, int]]:
    return [pair for out in join.run() for pair in zip(out.left.tolist(), out.right.tolist(), strict=True)]


@pytest.mark.parametrize("window", [30 * SECOND, 200 * SECOND, None])
@pytest.mark.parametrize("fraction", [0.05, 0.2, 0.5])
def test_nearly_as_many_pairs_are_found_as_the_best_whole_keys_have(window: int | None, fraction: float) -> None:
    """Against every set of keys that the grant pays for, at the operator's own prices, by brute force."""
    for seed in range(4):
        joined = uneven(seed, window)
        exact = brute_force(joined)
        keys = joined.left.key.to_pylist()
        tuples = Counter(key for side in joined.streams for key in side.key.to_pylist())
        pairs = Counter(keys[i] for i, _ in exact)
        join = best_first(joined, fraction)
        taking = ENGINE.insert + min(ENGINE.scan, ENGINE.lookup)
        cost = {key: taking * n + ENGINE.emit * pairs[key] for key, n in tuples.items()}
        grant = fraction * float(join.data.costs.sum())
        sets = itertools.chain.from_iterable(itertools.combinations(cost, many) for many in range(len(cost) + 1))
        most = max(sum(pairs[key] for key in each) for each in sets if sum(cost[key] for key in each) <= grant)
        found = found_by(join)
        assert len(found) == len(set(found))
        assert set(found) <= exact
        assert join.figures.spent <= join.figures.granted == pytest.approx(grant, abs=0.02 * len(keys))
        assert len(found) >= 0.9 * most


@pytest.mark.usefixtures("asc_too")
@pytest.mark.parametrize("fraction", [0.03, 0.2, 0.6])
@pytest.mark.parametrize("preference", ["desc", "asc"])
def test_the_kernel_admits_and_pays_as_its_twin(fraction: float, preference: str) -> None:
    """Under asc no key has twice as many tuples as an outlier's, which would be turned away: some have more of them."""
    for joined, cap in ((joinable(3, n=900, keys=60, window=WINDOW), 24), (uneven(2, 60 * SECOND), 20)):
        assert cap < joined.standing.max() <= 2 * cap
        join = best_first(joined, fraction, seed=4, preference=preference, outlier_cap=cap)
        expected, spent = twin(join, joined)
        assert found_by(join) == expected
        assert join.spent == pytest.approx(spent)


def twin(join: PromisingJoin, joined: Joinable) -> tuple[list[tuple[int, int]], float]:
    """`keep_to_plan` in plain Python, over a join that has not run: the pairs in their order, and what was spent."""
    planned, state = join._runner, join.state
    assert isinstance(planned, Planned)
    plan, salt = planned.admission, int(state.setting[js.SALT])
    prices, window = state.prices / 100, joined.window
    taking, emit = prices[js.P_INSERT] + state.real[js.BOUNDS] / 100, prices[js.P_EMIT]
    credit, spent = state.real[js.CREDIT] / 100, state.real[js.SPENT] / 100
    start, at, held, due, paid, level = credit, 0, 0.0, 0.0, 0.0, 0
    wary, every = plan.real[3] / 100, int(plan.at[2])
    sides = (joined.left, join.data.left), (joined.right, join.data.right)
    kept: tuple[dict[int, list[int]], dict[int, list[int]]] = ({}, {})
    come, shed_at = [0, 0], {}
    rare, bounds = join.plan.preference == "asc", state.real[js.BOUNDS] / 100
    least, begun = emit + max(taking, prices[js.P_LOOKUP]), (dict[int, int](), dict[int, int]())

    def from_(table: Any, rung: int, arrival: int) -> float:
        for segment, (begin, end) in enumerate(itertools.pairwise([0, *plan.ends.tolist()])):
            if arrival < end:
                gone = (arrival - begin) / (end - begin)
                return float((1 - gone) * table[rung, segment] + gone * table[rung, segment + 1]) / 100
        return 0.0

    def may_be(arrival: int) -> int:
        """How frequent a tuple may be: all up to there are paid for; 0 while not all parts are open."""
        if at < len(plan.rung):
            return 0
        paid_for = (from_(plan.all, one, arrival) <= credit for one in range(1, len(plan.all)))
        return sum(1 for _ in itertools.takewhile(bool, paid_for))

    def wanted(rung: int, arrival: int) -> float:
        off = (paid + wary) / (due + wary)
        return off * from_(plan.to_come, rung, arrival) + from_(plan.sure, rung, arrival)

    found = []
    for arrival, side in enumerate(join.data.order.tolist()):
        if arrival % every == 0:
            if arrival:
                due += from_(plan.to_come, at, arrival - every) - from_(plan.to_come, at, arrival)
            at = max(r for r in range(len(plan.rung) + 1) if r == 0 or wanted(r, arrival) <= credit)
            held, level = wanted(at, arrival), may_be(arrival)
        ordinal = come[side]
        come[side] += 1
        code, h = int(sides[side][1].codes[ordinal]), int(sides[side][1].hashes[ordinal])
        if code < 0:
            continue
        rung = int(plan.rung[int(unit(h, salt + 1) * 4096)])
        ts = int(sides[side][0].ts[ordinal])
        since = -(2**63) if window is None else ts - window
        if (rare and plan.frequent[arrival] > level) or rung > at or credit < least + (held if rung == at else 0.0):
            shed_at[code] = ts
            continue
        if rare and not level and shed_at.get(code, since - 1) >= since and not plan.is_few[arrival]:
            shed_at[code] = ts
            credit -= prices[js.P_ESTIMATE]
            paid += prices[js.P_ESTIMATE] if rung < at and not plan.is_sure[rung] else 0.0
            continue
        kept[side].setdefault(code, []).append(ordinal)
        matches, own = (
            [one for one in kept[of].get(code, []) if sides[of][0].ts[one] >= since] for of in (1 - side, side)
        )
        cost = taking
        begun[1 - side][code] = len(kept[1 - side].get(code, [])) - len(matches)
        if rare and matches:
            cap, unsure = join.plan.outlier_cap, shed_at.get(code, since - 1) >= since
            if not unsure and len(kept[side][code]) - begun[side].get(code, 0) + len(matches) > cap:
                unsure = credit - cost < bounds + emit
                cost += 0.0 if unsure else bounds
                begun[side][code] = begun[side].get(code, 0) if unsure else len(kept[side][code]) - len(own)
            if unsure or len(matches) + len(own) > cap:
                matches = []
        credit -= cost
        if rung < at and not plan.is_sure[rung]:
            paid += cost + emit * len(matches)
        for other in matches:
            if credit >= emit:
                credit -= emit
                found.append((ordinal, other) if side == 0 else (other, ordinal))
    return found, spent + start - credit


@pytest.mark.usefixtures("asc_too")
@pytest.mark.parametrize("fraction", [0.02, 0.05, 0.2])
def test_a_key_that_is_heavy_late_does_not_spoil_the_outliers_of_others(fraction: float) -> None:
    """Key 0 has most of the pairs and comes last: what it grants pays for every other key's outliers."""
    rng = np.random.default_rng(7)
    sides = []
    for name in ("a", "b"):
        keys = np.where((np.arange(2_000) > 1_800) & (rng.random(2_000) < 0.9), 0, rng.integers(1, 300, 2_000))
        sides.append(stream(name, np.sort(rng.integers(0, 4_000, 2_000)), keys))
    joined = Joinable(sides[0], sides[1], 200 * SECOND)
    every = set(run(JoinPlan(window=joined.window, budget=Budget(1.0), preference="asc"), joined)[0])
    found = found_by(best_first(joined, fraction, preference="asc"))
    plan = plan_of(fraction, joined, preference="asc")
    assert set(found) <= every
    assert len(found) >= max(len(run(plan, joined)[0]), min(0.95, 4.0 * fraction) * len(every))


@pytest.mark.usefixtures("asc_too")
@pytest.mark.parametrize("costs", [ENGINE, MEMORY, MACHINE])
def test_no_more_is_spent_than_is_granted(costs: CostTable) -> None:
    """Heavy keys are noted as such, a note costs more than a tuple, and lists are looked up to the last."""
    for joined in (uneven(3, 200 * SECOND), uneven(4, 20 * SECOND), joinable(3, n=700, keys=60, window=WINDOW)):
        for fraction in (0.01, 0.05, 0.2, 0.5):
            for preference in ("asc", "desc"):
                join = best_first(joined, fraction, preference=preference, costs=costs)
                found_by(join)
                assert join.figures.spent <= join.figures.granted


@pytest.mark.usefixtures("asc_too")
def test_a_key_that_was_too_frequent_comes_in_again_when_it_is_rare() -> None:
    """Key 0 has one tuple a second, in turns, and once a burst: all others have hardly a pair."""
    rng = np.random.default_rng(6)
    sides = []
    for first, name in enumerate("ab"):
        times, keys = rng.integers(0, 400, 400), rng.integers(1, 300, 400)
        every, burst = np.arange(first, 400, 2), np.full(14, 50)
        times = np.concatenate([times, every, burst])
        order = np.argsort(times, kind="stable")
        sides.append(stream(name, times[order], np.concatenate([keys, 0 * every, 0 * burst])[order]))
    joined = Joinable(sides[0], sides[1], 2 * SECOND)
    every_pair = set(run(JoinPlan(window=joined.window, budget=Budget(1.0), preference="asc"), joined)[0])
    keys_of = joined.left.key.to_pylist()
    late = {(i, j) for i, j in every_pair if keys_of[i] == 0 and joined.left.ts[i] > 60 * SECOND}
    for seed in range(3):
        assert len(late & set(found_by(best_first(joined, 0.4, seed, preference="asc")))) > 0.9 * len(late)


def test_what_the_other_stream_told_last_of_a_key_is_what_its_grant_says() -> None:
    """By brute force, with keys that are missing, ties, and no window."""
    rng = np.random.default_rng(8)
    n = 300
    matches, codes, side = rng.integers(0, 9, n).astype(float), rng.integers(-1, 12, n), rng.integers(0, 2, n)
    times = np.sort(rng.integers(0, 500, n))
    for window in (40, None):
        told = matches_before(matches, codes.astype(np.int32), side.astype(np.int8), times, window)
        for k in range(n):
            of_other = [i for i in range(k) if codes[i] == codes[k] and side[i] != side[k]]
            inside = of_other and (window is None or times[k] - times[of_other[-1]] <= window)
            assert told[k] == (matches[of_other[-1]] if inside else np.inf)


@pytest.mark.parametrize("name", ["near-empty", "opposite skew", "lopsided", "zipf 0.5"])
def test_asc_over_small_tables_finds_as_many_outliers_as_desc_does(name: str) -> None:
    """700 tuples a stream, over three seeds: tuple by tuple it was a twentieth to a third of them."""
    joined = made(name, 700, seed=2)
    least = dict.fromkeys(("asc", "desc"), 0)
    outliers = set(found_by(best_first(joined, 0.999, preference="asc")))
    for preference, seed in itertools.product(least, range(3)):
        found = set(found_by(best_first(joined, 0.1, seed, preference=preference)))
        assert preference == "desc" or found <= outliers
        least[preference] += len(found & outliers)
    assert least["asc"] >= least["desc"] > 0


@pytest.mark.parametrize("fraction", [0.02, 0.2, 0.5])
def test_where_nearly_all_pairs_are_outliers_asc_finds_at_least_as_many_as_desc(fraction: float) -> None:
    """Keys of which a window holds one in the mean, in two streams of 4,000 tuples; over six seeds."""
    rng = np.random.default_rng(11)
    sides = [stream(name, np.sort(rng.integers(0, 8_000, 4_000)), rng.integers(0, 4_000, 4_000)) for name in "ab"]
    joined = Joinable(sides[0], sides[1], 1_500 * SECOND)
    outliers = set(run(JoinPlan(window=joined.window, budget=Budget(1.0), preference="asc"), joined)[0])
    assert len(outliers) > 0.9 * joined.pairs
    found = {
        preference: sum(len(outliers & set(found_by(best_first(joined, fraction, seed, preference=preference))))
                        for seed in range(6))
        for preference in ("asc", "desc")
    }  # fmt: skip
    assert found["asc"] >= found["desc"]


def test_arrivals_that_complete_pairs_are_met_where_the_budget_pays_for_most_of_them() -> None:
    """Many keys of a tuple or two: at a half nearly all pairs are found, where tuples at random tell three quarters."""
    rng = np.random.default_rng(12)
    sides = [stream(name, np.sort(rng.integers(0, 8_000, 4_000)), rng.integers(0, 4_000, 4_000)) for name in "ab"]
    joined = Joinable(sides[0], sides[1], 2_400 * SECOND)
    assert len(found_by(best_first(joined, 0.5))) > 0.95 * joined.pairs


def test_what_all_tuples_tell_is_what_there_is() -> None:
    """A sample of every tuple: sizes, pairs and matches a tuple are the truth, and costs add up from the end."""
    rng = np.random.default_rng(3)
    tuples = rng.integers(0, 9, (30, 4)).astype(float)
    pairs = tuples * rng.integers(0, 5, (30, 1))
    seen = Seen(tuples, pairs, pairs.sum(axis=1), tuples.sum(axis=0), pairs.sum(axis=0))
    expected = expected_of(seen)
    assert expected.tuples.sum(axis=1) == pytest.approx(tuples.sum(axis=1))
    plan = ranked(expected, 12.0, 10.0, np.zeros(30, bool), np.ones(1), np.ones(1), 1_000.0)
    assert (np.diff(expected.each[np.argsort(plan.rung)]) <= 0).all()
    cost = 12.0 * expected.tuples + 10.0 * expected.pairs
    for rungs, segment in ((0, 0), (7, 2), (30, 0)):
        mine = cost[plan.rung < rungs]
        assert plan.to_come[rungs, segment] == pytest.approx(mine[:, segment:].sum())
    assert not plan.sure.any()


def test_parts_met_by_luck_are_not_taken_for_large_ones() -> None:
    """Of 4,000 parts of two tuples each, 100 sampled tuples: what was met once has about two, as the others have."""
    times = np.zeros((4_000, 1))
    times[:100] = 1.0
    expected = expected_of(Seen(times, 0 * times, times[:, 0], np.array([8_000.0]), np.array([800.0])))
    assert expected.tuples[:100].max() < 4.0
    assert expected.tuples.sum() == pytest.approx(8_000.0, rel=0.05)
    heavy = times.copy()
    heavy[0] = 60.0
    expected = expected_of(Seen(heavy, 0 * heavy, heavy[:, 0], np.array([8_000.0]), np.array([800.0])))
    assert expected.tuples[0, 0] == pytest.approx(60 / 159 * 8_000, rel=0.05)


def test_matches_tell_how_likely_an_arrival_completes_outliers() -> None:
    """By hand, cap 4: the left stream's pairs are found by 1, 2 and 5 matches, so 3 of 8 have two or fewer."""
    left, right = [1, 2, 5, 0], [1, 2, 3, 4]
    side = np.array([0, 0, 0, 0, 1, 1, 1, 1], np.int8)
    likely = likely_outliers(np.array([*left, *right], float), side, 4)
    assert likely[side == 0] == pytest.approx([1 * 6 / 10, 2 * 3 / 10, 0, 0])
    assert likely[side == 1] == pytest.approx([1 * 3 / 8, 2 * 3 / 8, 3 * 1 / 8, 0])


def test_parts_where_outliers_are_completed_are_told_by_those_that_complete_them() -> None:
    """Of 4,000 parts of two tuples, 50 complete an outlier: all met, these alone promise some; none met, nothing."""
    none = np.zeros((4_000, 1))
    seen = Seen(none, none, none[:, 0], np.array([8_000.0]), np.array([50.0]))
    expected, met = expected_of(seen), none.copy()
    met[100:150] = 1.0
    told = completed(expected, none[:, 0], met, met, np.array([50.0]))
    assert set(np.argsort(-told.each)[:50]) == set(range(100, 150))
    assert told.pairs.sum() == pytest.approx(50.0)
    assert told.tuples.sum() == pytest.approx(8_000.0)
    some = met * (np.arange(4_000) % 2 == 0)[:, None]
    half = completed(expected, none[:, 0], some, some, np.array([50.0]))
    assert set(np.argsort(-half.each)[:25]) == set(range(100, 150, 2))
    assert 0.0 < half.each[101] < half.each[100]
    assert completed(expected, none[:, 0], none, none, np.array([50.0])) is expected


def test_parts_that_look_small_by_luck_have_what_others_like_them_have() -> None:
    """Forty parts of 200 tuples and as many outliers: one that a sample of tuples missed is like the rest."""
    times, met = np.full((40, 1), 4.0), np.full((40, 1), 5.0)
    times[7] = 0.0
    seen = Seen(times, 0 * times, times[:, 0], np.array([8_000.0]), np.array([800.0]))
    told = completed(expected_of(seen), times[:, 0], met, met, np.array([800.0]))
    assert told.tuples[7, 0] > 50.0
    assert told.tuples.sum() == pytest.approx(8_000.0)


@pytest.mark.usefixtures("asc_too")
def test_outliers_alone_are_found_under_asc_and_all_of_them_where_all_tuples_come_in() -> None:
    """By definition, over what was not shed: no more than four tuples of the key in both windows."""
    for joined in (joinable(3, n=900, keys=500, window=WINDOW), uneven(2, 5 * SECOND)):
        sides = joined.left, joined.right
        keys = [side.key.to_pylist() for side in sides]
        outliers = set()
        for i, j in brute_force(joined):
            last = max((int(sides[0].ts[i]), 0, i), (int(sides[1].ts[j]), 1, j))
            many = sum(
                keys[s][k] == keys[0][i] and last[0] - joined.window <= int(sides[s].ts[k]) and place <= last  # type: ignore[operator]
                for s in (0, 1)
                for k, place in enumerate((int(t), s, k) for k, t in enumerate(sides[s].ts))
            )
            if many <= 4:
                outliers.add((i, j))
        for fraction in (0.05, 0.2, 0.5, 0.95):
            found = found_by(best_first(joined, fraction, preference="asc"))
            assert len(found) == len(set(found))
            assert set(found) <= outliers
        assert set(found) == outliers


def test_it_counts_ahead_where_the_whole_input_is_there_and_any_pair_is_as_good() -> None:
    joined = joinable(3, n=200, keys=20, window=WINDOW)
    plan = best_first(joined, 0.2).plan
    assert plans_ahead(plan)
    asc, many = plan.changed(preference="asc"), joinable(3, n=200, keys=200, window=WINDOW)
    assert not is_planned(asc, joined.input(ENGINE, ranges=False))
    assert is_planned(asc, many.input(ENGINE, ranges=False))
    assert not plans_ahead(plan.changed(guide="countsketch"))
    assert plans_ahead(plan.changed(fade=Fade(0.5)))
    assert not plans_ahead(plan.changed(fade=Fade(0.5), first=10))
    assert not plans_ahead(plan.changed(output="ranges"))
    assert not plans_ahead(plan.changed(preference="weighted"))
    assert not plans_ahead(plan.changed(budget=1.0))
    assert not isinstance(PromisingJoin(plan, joined.input(ENGINE, ranges=False))._runner, Planned)


def test_a_budget_that_pays_for_all_tuples_at_once_looks_at_none() -> None:
    """At 12 units a tuple and 10 a pair, where the exact answer pays 20 and 10."""
    joined = joinable(3, n=300, keys=4_000, window=SECOND)
    join = best_first(joined, 0.7)
    assert join.spent == 0.0
    assert set(found_by(join)) == brute_force(joined)
