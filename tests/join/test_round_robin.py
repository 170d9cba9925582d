"""JOIN-PROBE with several standing queries: a trace worked by hand, the twin, and what each query is promised."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_paper_join import HAND, ZONES, A, B, hand_plan, hand_run, hand_streams, spec_of
from twin_paper import Twin
from workload_join import SECOND, brute_force, joinable

from nile.operators.common.plan import JoinPlan
from nile.operators.drive.round_robin import RoundRobinJoin
from nile.operators.inputs.joining import Joinable
from nile.operators.join.join import JoinInput, PromisingJoin
from nile.preferences.budget import Budget
from nile.preferences.clock import Pace
from nile.preferences.fade import Fade
from nile.summaries.costs import ENGINE, MEMORY
from nile.summaries.errors import ConfigError

Found = list[tuple[int, int, int]]
P, Q = 0, 1


def found_by(join: RoundRobinJoin) -> Found:
    """(query, left, right) of every output, in the order found."""
    found: Found = []
    for outputs in join.run():
        assert outputs.query is not None
        found += zip(outputs.query.tolist(), outputs.left.tolist(), outputs.right.tolist(), strict=True)
    return found


def play(plans: list[JoinPlan], probes: list[tuple[int, float]]) -> tuple[Found, RoundRobinJoin]:
    join = RoundRobinJoin(plans, hand_streams(plans[0], ZONES, probes))
    return found_by(join), join


def two_plans() -> list[JoinPlan]:
    return [
        hand_plan(queue="own"), hand_plan(window=204 * SECOND, preference="asc", fade=Fade(1.0), queue="own"),
    ]  # fmt: skip


def test_two_queries_line_by_line() -> None:
    """P: window 1,000 s, desc, alpha = 0.5.  Q: window 204 s, asc, alpha = 1; queue "own".

    The zones of `test_paper_join`.

    S2 holds Z1 (G2; a b a a), Z2 (G1; one a, at 350 s) and open Z3 (G1; b a a).  x1 comes at 553 s and x2 at
    554 s, so Q's windows begin at 349 and 350 s: Z2 and Z3 are whole in them and G2 (up to 200 s) is outside.

    x1 = a arrives (grant 140).
      1.   S1.Summarize(x1), once: 16.
      2, 3. P: 4 reads * 3 rows * 2 = 24; Z3 2, Z1 1.5, Z2 1: 3 pushes * 4 = 12.                    36
           Q: G1 only: root, leaf Z2: 2 reads = 12; Z3 2, Z2 1: 8.                                  20
      4.   P's turn: Z3: b 2, a 12 (P 0-513), a 12 (P 0-514); pop of 3: 4.5.                       30.5
           Q's turn, asc, so Z2 first: a 12 (Q 0-256); pop of 2: 3.                                15
           P's turn: Z1: a 12 (P 0-0), b 2; the next a needs 12.                                    14
           Spent 131.5: 8.5 left, TimeOut(), and P's turn is over.
           PQ of P = Z1 from its third tuple, Z2.  PQ of Q = Z3.

    x2 = b arrives (grant 175, so 183.5 in hand).
      1.   16.
      2, 3. P: 4 reads = 24; Z3 1, Z1 0.5 (Z2's bound is 0: pruned): 8.                             32
           Q: root, leaf Z2 (pruned): 12; Z3: 4.                                                    16
      4.   Entries of x2 first, and Q is next.
           Q: Z3: b 12 (Q 1-512), a 2, a 2; pop of 2: 3.                                            19
           P: Z3: b 12 (P 1-512), a 2, a 2; pop of 4: 6.                                            22
           Q has none of x2 left: P again: Z1: a 2, b 12 (P 1-1), a 2, a 2; pop of 3: 4.5.          22.5
           Idle, so back to x1's, in turn.
           Q: Z3: b 2, a 12 (Q 0-513), a 12 (Q 0-514); its last entry, so the pop is free.          26
           P: Z1 goes on: a 12 (P 0-2), a 12 (P 0-3); pop of 2: 3.                                  27
           Q's queue is empty: P: Z2: a needs 12.
           Spent 180.5: 3 left, TimeOut().

    Left undone for good: P's Z2 of x1, that is, the pair 0-256 (which Q has).
    """
    found, join = play(two_plans(), [(A, 140.0), (B, 175.0)])
    assert found == [
        (P, 0, 513), (P, 0, 514), (Q, 0, 256), (P, 0, 0),
        (Q, 1, 512), (P, 1, 512), (P, 1, 1), (Q, 0, 513), (Q, 0, 514), (P, 0, 2), (P, 0, 3),
    ]  # fmt: skip
    whole = join.figures
    assert whole.granted - whole.spent == 3.0
    assert whole.spent_insert == 16 * (8 + 2)  # once a tuple, however many queries
    one, other = join.query_figures
    assert (one.outputs, one.regions, one.pruned) == (7, 5, 1)
    assert (other.outputs, other.regions, other.pruned) == (4, 3, 1)
    assert one.charged == 36 + 30.5 + 14 + 32 + 22 + 22.5 + 27
    assert other.charged == 20 + 15 + 16 + 19 + 26
    assert one.charged + other.charged == whole.spent_hit


def test_a_turn_that_is_timed_out_is_over_and_the_next_query_begins() -> None:
    """72 takes x1 in for both and buys nothing in P's turn; with x2, a null, Q is asked first."""
    nothing, _ = play(two_plans(), [(A, 72.0)])
    assert nothing == []
    found, _ = play(two_plans(), [(A, 72.0), (B, 48.0 + 16.0 + 12.0)])
    assert found == [(Q, 1, 512)]


def test_one_query_is_the_operator_of_one_query() -> None:
    probes = [(A, 106.5), (B, 112.5)]
    alone, join = hand_run(hand_plan(), ZONES, probes)
    found, robin = play([hand_plan()], probes)
    assert found == [(0, left, right) for left, right in alone]
    assert robin.figures == join.figures
    assert robin.query_figures[0].charged == join.figures.spent_hit


# --- against the twin --------------------------------------------------------------------------------------


def input_of(joined: Joinable, plans: list[JoinPlan]) -> JoinInput:
    """Costs for as many queries as there are plans: the exact costs of the first, so many times."""
    data = joined.input(plans[0].costs, ranges=False)
    return replace(data, costs=data.costs * len(plans))


def assert_equals_twin(plans: list[JoinPlan], joined: Joinable) -> Twin:
    join = RoundRobinJoin(plans, input_of(joined, plans))
    found = found_by(join)
    twin = Twin(plans, input_of(joined, plans)).run()
    whole = join.figures
    assert found == twin.found
    assert whole.shed == tuple(twin.shed)
    assert whole.admitted == twin.admitted
    assert whole.admitted + whole.nulls + sum(whole.shed) == whole.arrivals == len(joined.left) + len(joined.right)
    assert whole.spent <= whole.granted * (1 + 1e-9)
    assert whole.spent_insert == pytest.approx(twin.spent_insert / 100, rel=1e-9)
    assert whole.spent_hit == pytest.approx(twin.spent_hit / 100, rel=1e-9)
    for number, (told, query) in enumerate(zip(join.query_figures, twin.queries, strict=True)):
        assert (told.outputs, told.expired, round(100 * told.charged)) == (query.outputs, query.expired, query.charged)
        pairs = [(left, right) for found_by, left, right in found if found_by == number]
        assert len(pairs) == len(set(pairs))
        assert set(pairs) <= brute_force(Joinable(joined.left, joined.right, query.plan.window))
    return twin


def plans_of(windows: list[int | None], preferences: list[str], fades: list[float], **shared: Any) -> list[JoinPlan]:
    return [
        JoinPlan(window=None if w is None else w * SECOND, preference=p, fade=Fade(f), method="paper", **shared)
        for w, p, f in zip(windows, preferences, fades, strict=True)
    ]


CASES = [
    # structure, fraction, costs, replay, forgetting, windows in seconds, preferences, fades
    ("T4", 1.5, ENGINE, "none", False, [500, 100], ["desc", "weighted"], [0.8, 1.0]),
    ("T4", 3.0, MEMORY, "exponential", True, [300, 900, 30], ["asc", "desc", "weighted"], [1.0, 0.5, 1.0]),
    ("T3", 2.5, ENGINE, "none", True, [400, 400, 700], ["weighted", "desc", "asc"], [0.9, 0.9, 1.0]),
    ("T2", 4.0, ENGINE, "data", False, [200, None], ["desc", "asc"], [1.0, 0.8]),
    ("T1", 3.0, MEMORY, "none", False, [300, 10, 90, 600], ["desc", "desc", "weighted", "asc"], [1.0] * 4),
]


@pytest.mark.parametrize(
    ("structure", "fraction", "costs", "replay", "forgetting", "windows", "preferences", "fades"), CASES
)
def test_the_kernels_equal_the_twin_for_several_queries(
    structure: str, fraction: float, costs: Any, replay: str, forgetting: bool, windows: Any, preferences: Any,
    fades: Any,
) -> None:  # fmt: skip
    joined = joinable(len(windows), n=480, keys=30, window=400 * SECOND, replay=replay)
    plans = plans_of(
        windows, preferences, fades, budget=Budget(fraction), costs=costs, pace=Pace(replay, SECOND), waiting=20,
        spec=spec_of(structure, 400 * SECOND, forgetting=forgetting),
    )  # fmt: skip
    twin = assert_equals_twin(plans, joined)
    assert all(query.outputs > 0 for query in twin.queries)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32), n=st.integers(0, 30), keys=st.integers(1, 9),
    queries=st.lists(
        st.tuples(st.integers(0, 60), st.sampled_from(["desc", "weighted", "asc"]), st.sampled_from([0.5, 1.0])),
        min_size=1, max_size=4,
    ),
    structure=st.sampled_from(["T1", "T2", "T3", "T4"]),
    fraction=st.sampled_from([0.3, 1.0, 2.5, 7.0]), replay=st.sampled_from(["none", "data"]),
)  # fmt: skip
def test_the_kernels_equal_the_twin_on_any_few_queries(
    seed: int, n: int, keys: int, queries: Any, structure: str, fraction: float, replay: str
) -> None:
    windows, preferences, fades = ([query[i] for query in queries] for i in range(3))
    joined = joinable(seed, n=n, keys=keys, window=30 * SECOND)
    plans = plans_of(
        windows, preferences, fades, budget=Budget(fraction), pace=Pace(replay), waiting=3,
        spec=spec_of(structure, 30 * SECOND),
    )  # fmt: skip
    assert_equals_twin(plans, joined)


# --- what each query is promised ---------------------------------------------------------------------------


def test_a_stream_shared_by_many_queries_is_inserted_and_kept_once() -> None:
    joined = joinable(9, n=900, keys=40, window=200 * SECOND)
    plan = plans_of([200], ["desc"], [1.0], budget=Budget(100.0), spec=spec_of("T4", joined.window))[0]
    one = PromisingJoin(plan, joined.input(plan.costs, ranges=False))
    alone = sum(outputs.left.shape[0] for outputs in one.run())
    many = RoundRobinJoin([plan] * 5, input_of(joined, [plan] * 5))
    assert len(found_by(many)) == 5 * alone
    assert many.figures.spent_insert == one.figures.spent_insert
    assert many.figures.spent_hit == 5 * one.figures.spent_hit
    assert many.memory == one.memory


def test_equal_queries_get_equal_turns_and_almost_equal_work() -> None:
    """Under load, q equal queries are one turn apart: what they are charged differs by a few probes."""
    joined = joinable(10, n=2_000, keys=20, window=400 * SECOND)
    plan = plans_of([400], ["desc"], [1.0], budget=Budget(0.5), spec=spec_of("T2", joined.window))[0]
    join = RoundRobinJoin([plan] * 3, input_of(joined, [plan] * 3))
    found_by(join)
    charged = [query.charged for query in join.query_figures]
    assert min(charged) >= 0.9 * max(charged) > 0


def test_queries_that_differ_in_what_they_share_are_refused() -> None:
    joined = joinable(1, n=10, keys=4, window=30 * SECOND)
    plan = hand_plan()
    data = joined.input(HAND, ranges=False)
    with pytest.raises(ConfigError, match="needed at least one"):
        RoundRobinJoin([], data)
    with pytest.raises(ConfigError, match="standing query 1: needed the budget of query 0"):
        RoundRobinJoin([plan, replace(plan, budget=Budget(0.5))], data)
    with pytest.raises(ConfigError, match="standing query 0: needed method 'paper'"):
        RoundRobinJoin([replace(plan, method="nile")], data)
