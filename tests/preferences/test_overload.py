"""Ten times the input for a minute: what is shed, what is charged, and how soon all is as it was before."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from nile.answers.join_answer import JoinAnswer
from nile.exact.join.chain import ExactJoin
from nile.experiments.benchmarks.truth.family import made
from nile.operators.common.plan import JoinPlan, default_spec
from nile.operators.inputs.joining import Joinable
from nile.operators.join.join import JoinInput, PromisingJoin
from nile.preferences import state as st
from nile.preferences.budget import Budget
from nile.preferences.clock import Pace
from nile.pyramid.grid import arrays as ga
from nile.summaries.hashing import Encoded, KeyHasher

Array = np.ndarray[Any, Any]
SECOND = 10**9
CALM = 1_000  # tuples per second, both streams
CALM_BEFORE, OVERLOADED, CALM_AFTER = 20, 60, 12  # seconds
BEGIN, END = CALM_BEFORE, CALM_BEFORE + OVERLOADED
BACK = 5  # seconds after which all must be normal again
TENFOLD = 10
WINDOW = 2 * SECOND
KEYS = 20_000
CAP = 4
HEADROOM = 1.5  # what is granted a second, in what a calm second needs
RECALL_TOLERANCE = 0.02
"""A window's edge moves with the second: a second's pairs are found a little earlier or later than it ends."""


@dataclass(frozen=True)
class Second:
    """What one simulated second did.  shed, lag: tuples; found: share of the pairs that it completed."""

    arrived: int
    kept: int
    shed: int
    lag: int
    found: float
    granted: float
    spent: float


@dataclass(frozen=True)
class Run:
    """seconds; and of each arrival whether it was kept, its second, key, stream, exact matches, tuples of its key."""

    seconds: list[Second]
    kept: Array
    second: Array
    code: Array
    side: Array
    matches: Array
    of_key: Array

    def overloaded(self) -> Array:
        """Arrivals of the overload, but for its first window, in which admission still finds its place."""
        out: Array = (self.second >= BEGIN + 2 * WINDOW // SECOND) & (self.second < END)
        return out


def streams() -> tuple[JoinInput, Array, Array]:
    """The input, the second and the key of each arrival."""
    rng = np.random.default_rng(1)
    rates = np.repeat([CALM, TENFOLD * CALM, CALM], [CALM_BEFORE, OVERLOADED, CALM_AFTER])
    second = np.repeat(np.arange(rates.shape[0]), rates)
    ts = np.sort(second * SECOND + rng.integers(0, SECOND, second.shape[0]))
    order = rng.integers(0, 2, ts.shape[0]).astype(np.int8)
    weights = np.arange(1, KEYS + 1) ** -0.7
    codes = np.searchsorted(np.cumsum(weights), rng.random(ts.shape[0]) * weights.sum()).astype(np.int32)
    hashes = KeyHasher().words(np.arange(KEYS, dtype=np.int64))[codes]
    left, right = (Encoded(codes=codes[order == k], hashes=hashes[order == k]) for k in (0, 1))
    data = JoinInput(
        left_ts=ts[order == 0], right_ts=ts[order == 1], left=left, right=right, order=order,
        costs=np.ones(order.shape[0]), keys=KEYS,
    )  # fmt: skip
    return data, second, codes


def tuples_of_key(data: JoinInput, codes: Array) -> Array:
    """Tuples of an arrival's key, both streams, in the window that ends with it."""
    ts = data.times()
    by_key = np.lexsort((ts, codes))
    key, at = codes[by_key].astype(np.int64) * (1 << 40), ts[by_key]
    first = np.searchsorted(key + at, key + at - WINDOW)
    out = np.empty(ts.shape[0], np.int64)
    out[by_key] = np.arange(ts.shape[0]) - first + 1
    return out


def listed(join: PromisingJoin, side: int) -> Array:
    """The ordinals in the tuple lists of a stream."""
    held = join.stores[side].side
    lists = held.lists[held.lists[:, ga.HELD] > 0]
    return np.concatenate(
        [held.arena[row[ga.PLACE] : row[ga.PLACE] + row[ga.HELD]] for row in lists] or [np.zeros(0, np.int64)]
    )


@cache
def run(preference: str, guide: str) -> Run:
    """A live join that is granted the same every second, whatever comes."""
    data, second, codes = streams()
    matches, _ = ExactJoin(data.left_ts, data.right_ts, data.left.codes, data.right.codes, KEYS, WINDOW).matches()
    of_key = tuples_of_key(data, codes)
    expected = np.where(of_key <= CAP, matches, 0) if preference == "asc" else matches
    plan = JoinPlan(
        window=WINDOW, budget=Budget(1.0), preference=preference, guide=guide, pace=Pace("data"), outlier_cap=CAP,
        spec=default_spec(WINDOW, ranking=preference != "asc"),
    )  # fmt: skip
    ends = np.cumsum(np.bincount(second))
    calm = PromisingJoin(plan, data)
    for k in range(CALM_BEFORE):
        list(calm.advance(int(ends[k]), credit=1e9))
    grant = HEADROOM * calm.spent / CALM_BEFORE

    join = PromisingJoin(plan, data)
    kept = [np.zeros(ts.shape[0], bool) for ts in (data.left_ts, data.right_ts)]
    seconds = []
    begin = shed = 0
    for end in ends.tolist():
        found = sum(out.left.shape[0] for out in join.advance(end, credit=grant))
        for side in (0, 1):
            kept[side][listed(join, side)] = True
        whole, figures = join.state.whole, join.figures
        seconds.append(
            Second(
                arrived=figures.arrivals,
                kept=int(kept[0].sum() + kept[1].sum()),
                shed=sum(figures.shed) - shed,
                lag=int(whole[st.ARRIVED] - whole[st.APPLIED]),
                found=found / max(1, int(expected[begin:end].sum())),
                granted=figures.granted,
                spent=figures.spent,
            )
        )
        begin, shed = end, sum(figures.shed)
    of_arrival = np.empty(data.order.shape[0], bool)
    for side in (0, 1):
        of_arrival[data.order == side] = kept[side]
    return Run(seconds, of_arrival, second, codes, data.order, matches, of_key)


EVERY = pytest.mark.parametrize(
    ("preference", "guide"),
    [("desc", "countsketch"), ("desc", "directory"), ("weighted", "countsketch"), ("weighted", "directory"),
     ("asc", "countsketch"), ("asc", "directory")],
)  # fmt: skip


@EVERY
def test_every_tuple_is_accounted_for_and_no_more_is_spent_than_was_granted(preference: str, guide: str) -> None:
    done = run(preference, guide)
    arrived, shed = 0, 0
    for k, second in enumerate(done.seconds):
        arrived += TENFOLD * CALM if BEGIN <= k < END else CALM
        shed += second.shed
        assert second.arrived == arrived
        assert second.kept + shed == arrived  # none is late and none rejected; what waits counts as shed
        assert second.spent <= second.granted * (1 + 1e-9)
    assert sum(second.shed for second in done.seconds[BEGIN:END]) > 0.2 * TENFOLD * CALM * OVERLOADED


@pytest.mark.parametrize("guide", ["countsketch", "directory"])
def test_desc_sheds_what_promises_less(guide: str) -> None:
    done = run("desc", guide)
    when = done.overloaded()
    assert done.matches[when & ~done.kept].mean() < done.matches[when & done.kept].mean()


@pytest.mark.parametrize("guide", ["countsketch", "directory"])
def test_asc_sheds_heavy_keys_first(guide: str) -> None:
    done = run("asc", guide)
    when = done.overloaded()
    assert done.of_key[when & ~done.kept].mean() > done.of_key[when & done.kept].mean()


@pytest.mark.parametrize("guide", ["countsketch", "directory"])
def test_weighted_sheds_by_key_in_both_streams_alike(guide: str) -> None:
    done = run("weighted", guide)
    when = done.overloaded() & (done.second >= END - 10)
    kept, shed = (
        [set(done.code[when & (done.side == side) & (done.kept == what)].tolist()) for side in (0, 1)]
        for what in (True, False)
    )
    assert kept[0]
    assert shed[0]
    assert not kept[0] & shed[1]
    assert not kept[1] & shed[0]


@EVERY
def test_five_seconds_after_an_overload_all_is_as_before(preference: str, guide: str) -> None:
    done = run(preference, guide)
    before = done.seconds[CALM_BEFORE // 2 : BEGIN]
    after = done.seconds[END + BACK :]
    usual = np.mean([second.shed for second in before])
    assert np.mean([second.shed for second in after]) <= usual
    assert max(second.lag for second in after) <= max(second.lag for second in before)
    assert np.mean([s.found for s in after]) >= np.mean([s.found for s in before]) - RECALL_TOLERANCE


@pytest.mark.parametrize("name", ["few keys", "one key is half", "planted rare keys"])
def test_desc_thins_the_tuples_of_keys_that_alone_are_more_than_the_budget(name: str) -> None:
    """A hundredth: were all tuples of the busiest slot taken in, nothing would be left for what they find."""
    joined = made(name, 4_000)
    found = {
        method: sum(len(JoinAnswer(joined, plan_at(joined, method, seed), key="key").pairs().left) for seed in range(3))
        for method in ("nile", "shed-uniform")
    }
    assert found["nile"] > found["shed-uniform"] > 0


def plan_at(joined: Joinable, method: str, seed: int) -> JoinPlan:
    spec = default_spec(joined.window, seed=seed)
    return JoinPlan(window=joined.window, budget=Budget(0.01), method=method, guide="directory", spec=spec, seed=seed)
