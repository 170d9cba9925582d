"""The weighted join of live streams, whose rates follow what is granted: unbiased, honest, and as its twin draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from test_sampler import _draws, _unit
from thinning import rounds, thinned

from nile.experiments.benchmarks.truth.family import made
from nile.operators.common.plan import JoinPlan, default_spec
from nile.operators.common.start import UNIT
from nile.operators.drive.live import LiveRun
from nile.operators.drive.live_join import LiveJoin
from nile.operators.inputs.joining import Joinable
from nile.preferences import state as st
from nile.preferences.budget import Budget


def planned(joined: Joinable, budget: float, seed: int, guide: str = "directory") -> JoinPlan:
    return JoinPlan(
        window=joined.window, budget=Budget(budget), preference="weighted", guide=guide, seed=seed,
        spec=default_spec(joined.window, seed=seed),
    )  # fmt: skip


def whole(live: LiveJoin, joined: Joinable) -> list[tuple[int, int, float]]:
    """All pairs found, with their weights, of the streams pushed at once."""
    live.push((joined.left.ts, joined.right.ts), (joined.left.key.combine_chunks(), joined.right.key.combine_chunks()))
    found = []
    for part in live.advance(live.arrivals):
        found += zip(part.left.tolist(), part.right.tolist(), part.weight.tolist(), strict=True)
    return found


@pytest.mark.parametrize("guide", ["directory", "countsketch"])
@pytest.mark.parametrize("budget", thinned([0.01, 0.05, 0.2, 0.5], 3))
@pytest.mark.parametrize("name", ["few keys", "zipf 1", "drifting", "one key is half"])
@pytest.mark.parametrize("seeds", rounds(120))
def test_the_mean_total_is_the_truth(name: str, budget: float, guide: str, seeds: int) -> None:
    joined = made(name, 1_000)
    totals = np.zeros(seeds)
    for seed in range(totals.shape[0]):
        live = LiveJoin(planned(joined, budget, seed, guide))
        totals[seed] = sum(weight for _, _, weight in whole(live, joined)) / joined.pairs
        assert live.figures.spent <= live.figures.granted
    assert abs(totals.mean() - 1.0) <= 3.5 * totals.std(ddof=1) / math.sqrt(totals.shape[0]) + 2e-3


@pytest.mark.parametrize("budget", [0.02, 0.3])
@pytest.mark.parametrize("name", ["few keys", "zipf 1", "null keys", "tied times"])
def test_it_draws_what_its_twin_draws(name: str, budget: float) -> None:
    joined = made(name, 600)
    live = LiveJoin(planned(joined, budget, 3))
    assert whole(live, joined) == _twin(LiveJoin(planned(joined, budget, 3)), joined)


@pytest.mark.parametrize(("name", "most"), [("zipf 1", 0.25), ("few keys", 0.12), ("drifting", 0.15)])
def test_totals_scatter_little_where_keys_come_again_and_again(name: str, most: float) -> None:
    """Left out by their hashes, as a window's matches alone would have it, keys made it .21 to 1.05."""
    joined = made(name, 4_000)
    totals = [
        sum(weight for _, _, weight in whole(LiveJoin(planned(joined, 0.02, seed)), joined)) / joined.pairs
        for seed in range(30)
    ]
    assert np.std(totals) <= most


def test_what_an_older_one_promised_is_found_by_the_one_that_goes_on_from_it() -> None:
    joined = made("zipf 1", 1_500)
    half = 800
    ends = (int(joined.left.ts[half]), int(max(joined.left.ts[-1], joined.right.ts[-1])))

    def parts(first: int, last: int) -> tuple[tuple[np.ndarray, ...], tuple[object, ...]]:
        slices = [
            slice(*(int(np.searchsorted(one.ts, at, side="right")) for at in (first, last)))
            for one in (joined.left, joined.right)
        ]
        streams = list(zip((joined.left, joined.right), slices, strict=True))
        return tuple(one.ts[at] for one, at in streams), tuple(one.key[at].combine_chunks() for one, at in streams)

    def older() -> LiveJoin:
        live = LiveJoin(planned(joined, 0.1, 2))
        live.join.follow(None)
        return live

    def taken(run: LiveRun, part: tuple) -> list[tuple[int, int, float]]:
        outputs = list(run.take(*part))
        return [pair for out in outputs for pair in zip(*map(list, (out.left, out.right, out.weight)), strict=True)]

    first, second = parts(-(10**18), ends[0]), parts(*ends)
    run = LiveRun(older())
    taken(run, first)
    state = run.capture()
    keys = tuple(
        one.key[begin : int(np.searchsorted(one.ts, ends[0], side="right"))].combine_chunks()
        for one, begin in zip((joined.left, joined.right), run.operator.needed_from(), strict=True)
    )
    wanted = taken(run, second)
    fresh = LiveRun(LiveJoin(planned(joined, 0.1, 2)))
    fresh.restore(state, keys)
    assert wanted
    assert taken(fresh, second) == wanted


def _twin(live: LiveJoin, joined: Joinable) -> list[tuple[int, int, float]]:
    """The same by lists and dicts, tuple by tuple; of the join it takes prices, salt and phase alone."""
    prices = live.state.prices
    insert, bounds, emit = float(prices[st.P_INSERT]), float(live.state.real[st.BOUNDS]), float(prices[st.P_EMIT])
    lookup, salt, budget = float(prices[st.P_LOOKUP]), int(live.state.setting[st.SALT]), live.plan.fraction
    assert live.follower is not None
    ahead = within = float(live.follower.sampling.real[0])
    window = live.plan.window
    assert window is not None
    streams = (joined.left, joined.right)
    encoded = [live.encode(one.key.combine_chunks()) for one in streams]
    arrivals = sorted((int(ts), side, i) for side, one in enumerate(streams) for i, ts in enumerate(one.ts))
    seen: list[dict[int, list[int]]] = [{}, {}]
    kept: list[dict[int, list[tuple[int, int, float, float]]]] = [{}, {}]
    waiting: list[tuple[int, int, int, float]] = []
    cast: dict[tuple[int, int], float] = {}
    factor = 1.0
    found: list[tuple[int, int, float]] = []
    owed: list[tuple[int, int, float]] = []
    credit = granted = expected = 0.0
    mean = budget * (insert + lookup + 16 * emit)
    ticks = drawn = 0
    newest: dict[int, int] = {}
    keyed = begun = 0
    moments = [0.0, 0.0, 0.0]
    for number, arrival in enumerate(arrivals, 1):
        ts, side, i = arrival
        code = int(encoded[side].codes[i])
        matches = 0
        if code >= 0:
            matches = sum(each >= ts - window for each in seen[1 - side].get(code, []))
            seen[side].setdefault(code, []).append(ts)
        grant = budget * round(
            UNIT * (live.plan.costs.insert + live.plan.costs.lookup + live.plan.costs.emit * matches)
        )
        credit += grant
        granted += grant
        mean += (grant - mean) / min(128 + number, 512)
        if code >= 0:
            keyed += 1
            begun += ts - newest.get(code, -(10**19)) > window
            newest[code] = ts
            met_by = max(0.0, (grant / budget - insert - lookup) / emit)
            moments[0] += met_by
            moments[1] += met_by * max(0.0, met_by - 1)
            moments[2] += met_by * max(0.0, met_by - 1) * max(0.0, met_by - 2)
        thinning = _thinning(keyed, begun, *moments)
        waiting.append((*arrival, _rates(mean, budget, insert, bounds, lookup, emit, thinning)[0]))
        while True:
            while owed and credit >= emit:
                found.append(owed.pop(0))
                credit -= emit
            if owed or not waiting:
                break
            ts, side, i, level = waiting[0]
            code, h = int(encoded[side].codes[i]), int(encoded[side].hashes[i])
            below = code >= 0 and _unit(h, salt) < level
            in_hand = credit - emit * (expected - drawn)
            coin = cast.get((side, i), 0.0)
            if below:
                _, kept_by, rate = _rates(mean, budget, insert, bounds, lookup, emit, thinning)
                few = 8 * (insert + bounds)
                wanted = min(max(few, 64 * mean), max(insert + bounds, granted / 4))
                factor = min(4.0, in_hand / wanted)
                kept_by = min(1.0, max(1e-3, factor, min(1.0, in_hand / few)) * kept_by)
                if not coin and _unit(2 * i + side, salt + 4) < kept_by:
                    coin = cast[side, i] = kept_by
            if coin and in_hand < insert + bounds + 2 * emit:
                break
            waiting.pop(0)
            if not coin:
                continue
            factor = max(1 / 16, factor)
            credit = credit - insert - bounds
            kept[side].setdefault(code, []).append((ts, i, level, coin))
            met = [each for each in kept[1 - side].get(code, []) if each[0] >= ts - window]
            n = len(met)
            if not n:
                continue
            rate = min(1.0, min(max(1e-9, 0.5 * (in_hand - insert - bounds) / (emit * n)), factor * rate))
            expected += _draws(rate, n)
            hits = n if rate >= 1.0 else 0
            if rate < 1.0:
                while ahead < rate * n:
                    hits += 1
                    ticks += 1
                    moved = _unit(ticks, salt + 3)
                    ahead += 1.0 + moved - within
                    within = moved
                ahead -= rate * n
            draws = min(hits, n)
            drawn += draws
            place = _unit(2 * i + side, salt + 5) * (n / draws) if 0 < draws < n else 0.0
            for _ in range(draws):
                _, other, other_level, other_coin = met[int(place)]
                pair = (other, i) if side else (i, other)
                share = rate * draws / hits
                owed.append((*pair, 1.0 / (min(level, other_level) * coin * other_coin * share)))
                place += n / draws
    return found


def _thinning(keyed: int, begun: int, once: float, twice: float, thrice: float) -> float:
    if once <= 0.0:
        return 1.0
    again = 0.5 * keyed / max(1.0, begun)
    return max(1.0, 2.0 * again * keyed * thrice / (once * once) - 4.0 * twice / once)


def _rates(
    mean: float, budget: float, insert: float, bounds: float, lookup: float, emit: float, thinning: float
) -> tuple[float, float, float]:
    granted, taking = 0.95 * mean, insert + bounds
    emitting = max(0.0, mean / budget - insert - lookup)
    thinned = 1.0 / math.sqrt(max(1.0, emitting / emit, thinning))
    come = min(1.0, max(0.5 * granted / taking, granted / (taking + emitting * thinned)))
    level = min(1.0, max(1e-4, come / thinned))
    kept = min(1.0, come / level)
    if come > thinned:
        root = min(1.0, granted / taking)
        for _ in range(8):
            root = (granted + root * (emitting * root)) / (taking + 2.0 * (emitting * root))
        kept = max(min(1.0, 0.5 * granted / taking), min(1.0, root))
    met = level * kept * emitting * kept
    spare = max(0.0, granted - level * kept * taking)
    return level, kept, 1.0 if met <= spare else spare / met
