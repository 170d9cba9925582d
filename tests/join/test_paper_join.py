"""`method="paper"`: JOIN-PROBE line by line on a trace worked by hand, against its twin, and its promises."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twin_paper import Twin
from workload_join import SECOND, Pairs, assert_honest, brute_force, joinable, run, stream

from nile.operators.common.plan import JoinPlan
from nile.operators.inputs.joining import Joinable
from nile.operators.join.join import JoinInput, PromisingJoin
from nile.preferences.budget import Budget
from nile.preferences.clock import Pace
from nile.preferences.fade import Fade
from nile.preferences.heap import heap_of, new_heaps, roomier
from nile.preferences.heap_kernels import ARRIVAL, HIGH, KEY, OWN, TIME, WAITING, replay_operations
from nile.pyramid.grid.spec import SummarySpec
from nile.summaries.costs import ENGINE, MEMORY, CostTable
from nile.summaries.errors import ConfigError

# The `engine` prices, but counters are added for nothing, so that zones cost no arithmetic here.
HAND = CostTable("hand", insert=10, update=2, estimate=2, scan=2, emit=10, lookup=10, push=4, pop=6, heap_pop=3, add=0)
A, B = 1, 2
SLICE = 256


def hand_plan(**changes: Any) -> JoinPlan:
    spec = SummarySpec(
        granularity=100 * SECOND, rate=2, depth=2, structure="T3", buckets=1, columns=512, max_zones=2,
        max_length=SECOND,
    )  # fmt: skip
    options: dict[str, Any] = {
        "window": 1_000 * SECOND, "budget": Budget(1.0), "method": "paper", "fade": Fade(0.5), "costs": HAND,
        "spec": spec,
    }  # fmt: skip
    return JoinPlan(**{**options, **changes})


def hand_run(plan: JoinPlan, zones: list[list[int]], probes: list[tuple[int, float]]) -> tuple[Pairs, PromisingJoin]:
    """Play `hand_streams`; the pairs in the order they were found."""
    join = PromisingJoin(plan, hand_streams(plan, zones, probes))
    found: Pairs = []
    for outputs in join.run():
        found += zip(outputs.left.tolist(), outputs.right.tolist(), strict=True)
    return found, join


def hand_streams(plan: JoinPlan, zones: list[list[int]], probes: list[tuple[int, float]]) -> JoinInput:
    """S2 = `zones` (one slice each, the last one left open), then S1 = `probes`, each with what it grants."""
    keys: list[int | None] = []
    times: list[int] = []
    for number, zone in enumerate(zones):
        last = number == len(zones) - 1
        keys += zone if last else [*zone, *([None] * (SLICE - len(zone)))]
        start = 200 * number
        slice_times = [start + 150 + i for i in range(len(zone))]
        times += slice_times if last else [*slice_times, *([start + 200] * (SLICE - len(zone)))]
    right = stream("S2", times, keys)
    left = stream("S1", [times[-1] + 1 + i for i in range(len(probes))], [key for key, _ in probes])
    data = Joinable(left, right, plan.window).input(plan.costs, ranges=False)
    taking = np.array([0.0 if key is None else 16.0 for key in keys])
    return replace(data, costs=np.concatenate([taking, [grant for _, grant in probes]]))


ZONES = [[A, B, A, A], [A], [B, A, A]]
"""S2 when S1 begins: zone Z1 = ordinals 0..255 (a b a a, then null keys), Z2 = 256..511 (a), Z3 = 512.. (b a a)."""


def test_join_probe_line_by_line() -> None:
    """Figure 7 by hand, desc, alpha = 0.5, queue "own".

    S2.  A tuple costs 10 (insert) + 2 * 3 (three sketch rows) = 16, S1 being empty; null keys cost nothing.
    Slice 0 ends at 200 s: Z1 is longer than MAXLENGTH (1 s) and ends.  Slice 1 ends at 400 s: Z2 ends, and Z1,
    whose last tuple came at 153 s, is older than the 100 s of G1: COLLAPSE moves it to G2.  Z3 is open.

    x1 = a arrives (grant 106.5).
      1.   S1.Summarize(x1): 16.
      2, 3. G1 intersects the window.  The index: root (read 1) has bound 3 > 0; its one child is leaf Z2 (read 2):
           Estimate = 1; open Z3 is the root less that: Estimate = 2.  G2: root (read 3), leaf Z1 (read 4):
           Estimate = 3, times alpha = 1.5.  4 reads * 3 rows * 2 = 24; 3 entries * 4 = 12.
           PQ = Z3 2, Z1 1.5, Z2 1.
      4.   Probe Z3 in arrival order: b 2; a 12 (pair 0-513); a 12 (pair 0-514); done, pop 3 * log2 3 ~ 3 * 1.5 = 4.5.
           Probe Z1: a 12 (pair 0-0); b 2; next a needs 12.
           Spent 16 + 36 + 26 + 4.5 + 14 = 96.5 of 106.5: 10 left, TimeOut().  PQ = Z1 from its third tuple, Z2.

    x2 = b arrives (grant 112.5, so 122.5 in hand).
      1.   16.   2, 3. G1: root, Z2 (bound 0: pruned): Z3 Estimate 1.  G2: root, leaf Z1: 0.5.
           4 reads = 24; 2 entries = 8.
      4.   Own entries first.  Z3: b 12 (pair 1-512), a 2, a 2; pop of 4 entries 3 * 2 = 6.
           Z1: a 2, b 12 (pair 1-1), a 2, a 2; pop of 3 entries 4.5.
           Idle, so back to x1's.  Z1 (1.5 > 1) goes on: a 12 (pair 0-2), a 12 (pair 0-3); pop of 2 entries 3.
           Z2: a needs 12.  Spent 48 + 22 + 22.5 + 27 = 119.5 of 122.5: 3 left, TimeOut().

    Left undone for good: Z2 of x1, that is, the pair 0-256.
    """
    found, join = hand_run(hand_plan(queue="own"), ZONES, [(A, 106.5), (B, 112.5)])
    assert found == [(0, 513), (0, 514), (0, 0), (1, 512), (1, 1), (0, 2), (0, 3)]
    figures = join.figures
    assert figures.granted - figures.spent == 3.0
    assert (figures.regions, figures.pruned) == (5, 1)
    assert figures.spent_insert == 16 * (8 + 2)
    assert figures.shed == (0, 0)


def test_in_one_queue_the_best_entry_goes_first_whosever_it_is() -> None:
    """The trace above up to x2, which has 74.5 left to probe with.  PQ = Z1 1.5 and Z2 1 of x1, Z3 1 and Z1 .5 of x2.

    Z1 of x1 goes on: a 12, a 12 (pairs 0-2, 0-3); pop of 4 entries 6.  Of the two with 1 the earlier arrival's: Z2 of
    x1, a 12 (pair 0-256), pop of 3 entries 4.5.  Z3 of x2: b 12 (pair 1-512), a 2, a 2; pop of 2 entries 3.
    Z1 of x2: a 2; b needs 12: 7 are left, TimeOut().
    """
    found, join = hand_run(hand_plan(), ZONES, [(A, 106.5), (B, 112.5)])
    assert found == [(0, 513), (0, 514), (0, 0), (0, 2), (0, 3), (0, 256), (1, 512)]
    figures = join.figures
    assert figures.granted - figures.spent == 7.0


def test_a_later_grant_finishes_what_a_time_out_left() -> None:
    """After x2 of the trace above 3 are left; Z2 of x1 needs 12 and its pop, of the last entry, nothing."""
    before, _ = hand_run(hand_plan(queue="own"), ZONES, [(A, 106.5), (B, 112.5 + 8)])
    after, _ = hand_run(hand_plan(queue="own"), ZONES, [(A, 106.5), (B, 112.5 + 9)])
    assert after == [*before, (0, 256)]


@pytest.mark.parametrize(
    ("preference", "order"),
    [
        ("desc", [513, 514, 0, 2, 3, 256]),
        ("asc", [256, 0, 2, 3, 513, 514]),
        ("weighted", [513, 514, 0, 2, 3, 256]),
    ],
)
def test_each_preference_has_its_order(preference: str, order: list[int]) -> None:
    """Priorities Z3 2, Z1 1.5, Z2 1.  weighted: first turns at 1/2, 1/1.5, 1/1, and one turn does each."""
    found, _ = hand_run(hand_plan(preference=preference), ZONES, [(A, 1_000.0)])
    assert [right for _, right in found] == order


def test_weighted_divides_the_time_in_proportion_to_the_estimates() -> None:
    """Z1 holds 40 of a, Z2 20, Z3 one b; alpha = 1, so priorities 40 and 20; a turn looks at 16 tuples.

    Turns come up at (turns + 1) / priority.  Z1: 1/40, 2/40, 3/40; Z2: 1/20, 2/20.  So Z1; then 2/40 = 1/20,
    and the tie goes to the later zone: Z2, Z1; then Z1's last 8 (3/40), then Z2's last 4.
    """
    zones = [[A] * 40, [A] * 20, [B]]
    found, _ = hand_run(hand_plan(preference="weighted", fade=Fade(1.0)), zones, [(A, 1_000.0)])
    z1, z2 = list(range(40)), list(range(SLICE, SLICE + 20))
    assert [right for _, right in found] == z1[:16] + z2[:16] + z1[16:32] + z1[32:] + z2[16:]


def test_an_insertion_that_cannot_be_paid_makes_the_engine_busy_and_sheds_what_arrives() -> None:
    """x1 costs 52 before its first probe.  40 pay a part; x2 finds the engine busy; x3 finds it free again."""
    found, join = hand_run(hand_plan(queue="own"), ZONES, [(A, 40.0), (B, 10.0), (B, 2.0 + 48.0 + 12.0)])
    assert join.figures.shed == (1, 0)
    assert found == [(2, 512)]


def test_the_index_prunes_only_what_cannot_be_there() -> None:
    """A key that no zone of S2 holds makes no entry; under BLIND estimates of 0 prune nothing."""
    _, join = hand_run(hand_plan(), ZONES, [(77, 500.0)])
    assert join.figures.regions == 0
    seeing, _ = hand_run(hand_plan(), ZONES, [(A, 500.0)])
    blind, join = hand_run(hand_plan(blind=True), ZONES, [(A, 500.0)])
    assert join.figures.regions == 3
    assert sorted(seeing) == sorted(blind)
    assert seeing != blind


def test_an_entry_covers_only_the_positions_that_were_there_when_it_was_made() -> None:
    """Whatever waits, the pair of x1 and a later tuple is found once, by the later one."""
    joined = joinable(5, n=600, keys=12, window=400 * SECOND)
    plan = hand_plan(window=joined.window, budget=Budget(4.0), costs=ENGINE)
    found, join = run(plan, joined)
    assert_honest(plan, joined, found, join)
    assert join.figures.outputs > 0


# --- the whole method against its twin --------------------------------------------------------------------


def spec_of(structure: str, window: int | None, *, forgetting: bool = False, **options: Any) -> SummarySpec:
    granularity = 100 * SECOND if window is None else max(1, window // 4)
    return SummarySpec(
        granularity=granularity, structure=structure, buckets=4, columns=16, max_zones=4, forgetting=forgetting,
        rate=2, **options,
    )  # fmt: skip


def assert_equals_twin(plan: JoinPlan, joined: Joinable) -> Twin:
    found, join = run(plan, joined)
    assert_honest(plan, joined, found, join)
    twin = Twin([plan], joined.input(plan.costs, ranges=False)).run()
    figures = join.figures
    assert found == twin.pairs
    assert figures.shed == tuple(twin.shed)
    assert figures.admitted == twin.admitted
    assert figures.expired == twin.expired
    assert figures.spent_insert == pytest.approx(twin.spent_insert / 100, rel=1e-9)
    assert figures.spent_hit == pytest.approx(twin.spent_hit / 100, rel=1e-9)
    return twin


CASES = [
    # structure, preference, fraction, fade, costs, replay, forgetting, window in seconds
    ("T4", "desc", 0.6, 0.8, ENGINE, "none", False, 500),
    ("T4", "weighted", 6.0, 0.8, MEMORY, "none", False, 900),
    ("T4", "asc", 1.0, 1.0, ENGINE, "exponential", False, 300),
    ("T4", "desc", 1.0, 0.5, ENGINE, "data", True, 500),
    ("T3", "desc", 3.0, 0.8, MEMORY, "none", False, 500),
    ("T3", "weighted", 2.0, 1.0, ENGINE, "exponential", True, 400),
    ("T3", "asc", 1.5, 0.8, ENGINE, "none", True, 700),
    ("T2", "desc", 4.0, 0.8, ENGINE, "none", False, 500),
    ("T2", "weighted", 4.0, 0.8, ENGINE, "data", False, 200),
    ("T1", "desc", 3.0, 1.0, ENGINE, "none", False, 300),
    ("T1", "weighted", 6.0, 1.0, MEMORY, "exponential", False, 300),
    ("T4", "desc", 1.5, 0.9, ENGINE, "none", False, None),
]


@pytest.mark.parametrize(
    ("structure", "preference", "fraction", "fade", "costs", "replay", "forgetting", "seconds"), CASES
)
def test_the_kernels_equal_the_twin(
    structure: str, preference: str, fraction: float, fade: float, costs: CostTable, replay: str, forgetting: bool,
    seconds: int | None,
) -> None:  # fmt: skip
    window = None if seconds is None else seconds * SECOND
    joined = joinable(CASES.index((structure, preference, fraction, fade, costs, replay, forgetting, seconds)),
                      n=700, keys=40, window=window, replay=replay)  # fmt: skip
    plan = JoinPlan(
        window=window, budget=Budget(fraction), method="paper", preference=preference, fade=Fade(fade), costs=costs,
        pace=Pace(replay, SECOND), spec=spec_of(structure, window, forgetting=forgetting), waiting=20,
        queue="own" if CASES.index((structure, preference, fraction, fade, costs, replay, forgetting, seconds)) % 3 == 0
        else "one",
    )  # fmt: skip
    twin = assert_equals_twin(plan, joined)
    assert 0 < len(twin.pairs) < joined.pairs


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32), n=st.integers(0, 40), keys=st.integers(1, 9), window=st.integers(0, 60),
    preference=st.sampled_from(["desc", "weighted", "asc"]), structure=st.sampled_from(["T1", "T2", "T3", "T4"]),
    fraction=st.sampled_from([0.3, 1.0, 2.5, 7.0]), replay=st.sampled_from(["none", "data"]),
    queue=st.sampled_from(["one", "own"]),
)  # fmt: skip
def test_the_kernels_equal_the_twin_on_any_small_input(
    seed: int, n: int, keys: int, window: int, preference: str, structure: str, fraction: float, replay: str, queue: str
) -> None:
    joined = joinable(seed, n=n, keys=keys, window=window * SECOND)
    plan = JoinPlan(
        window=window * SECOND, budget=Budget(fraction), method="paper", preference=preference,
        pace=Pace(replay), spec=spec_of(structure, window * SECOND), waiting=3, queue=queue,
    )  # fmt: skip
    assert_equals_twin(plan, joined)


# --- what it promises -------------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", ["T1", "T2", "T3", "T4"])
@pytest.mark.parametrize("preference", ["desc", "weighted", "asc"])
def test_with_credit_enough_every_structure_finds_everything(structure: str, preference: str) -> None:
    joined = joinable(3, n=900, keys=30, window=300 * SECOND)
    plan = JoinPlan(
        window=joined.window, budget=Budget(200.0), method="paper", preference=preference,
        spec=spec_of(structure, joined.window),
    )  # fmt: skip
    found, join = run(plan, joined)
    assert_honest(plan, joined, found, join)
    assert set(found) == brute_force(joined)


def test_what_is_forgotten_is_not_found_and_lowers_coverage() -> None:
    joined = joinable(4, n=1_500, keys=20, window=2_000 * SECOND)
    spec = SummarySpec(granularity=100 * SECOND, rate=2, depth=2, max_zones=4, forgetting=True)
    plan = JoinPlan(window=joined.window, budget=Budget(500.0), method="paper", spec=spec)
    found, join = run(plan, joined)
    assert_honest(plan, joined, found, join)
    assert 0 < len(found) < joined.pairs
    assert join.figures.coverage < 1.0
    assert join.figures.forgotten > 0


def test_ranges_are_refused_because_a_scan_has_none() -> None:
    with pytest.raises(ConfigError, match="needed 'pairs' with method 'paper'"):
        JoinPlan(window=None, budget=Budget(1.0), method="paper", output="ranges")


def test_equation_one_holds_when_nothing_is_shed_and_all_is_spent() -> None:
    joined = joinable(2, n=2_000, keys=10, window=400 * SECOND)
    plan = JoinPlan(
        window=joined.window, budget=Budget(0.9), method="paper", spec=spec_of("T2", joined.window), costs=ENGINE
    )
    _, join = run(plan, joined)
    figures = join.figures
    if sum(figures.shed) + figures.nulls == 0:
        assert figures.predicted_outputs_per_input == pytest.approx(figures.outputs_per_input, rel=0.05)
    assert figures.t_ins is not None
    assert figures.t_hit is not None
    assert figures.interarrival is not None
    predicted = (figures.interarrival - figures.t_ins) / figures.t_hit
    assert figures.predicted_outputs_per_input == pytest.approx(max(0.0, predicted))


def test_figures_of_a_run_that_did_nothing_are_none() -> None:
    joined = Joinable(stream("left", [], []), stream("right", [], []), SECOND)
    _, join = run(JoinPlan(window=SECOND, budget=Budget(1.0), method="paper"), joined)
    figures = join.figures
    assert (figures.t_ins, figures.t_hit, figures.outputs_per_input, figures.predicted_outputs_per_input) == (None,) * 4


def test_structures_are_ordered_in_insert_and_hit_cost_as_figure_9_has_them() -> None:
    """Under the `memory` table, all granted that is needed.  Better summaries cost more to keep and less to hit.

    Figure 9 has T2 < T3 < T4 in insertion; here T2 and T3 update as many counters, so they are equal, and T4
    adds its detector.  T3 and T4 hit alike: this stream changes too seldom to end zones before MAXLENGTH.
    """
    joined = joinable(11, n=6_000, keys=200, window=600 * SECOND)
    spec = {"buckets": 16, "columns": 8, "max_zones": 8, "granularity": 300 * SECOND, "depth": 2}
    insert, hit = {}, {}
    for structure in ("T1", "T2", "T3", "T4"):
        plan = JoinPlan(
            window=joined.window, budget=Budget(1_000.0), method="paper", costs=MEMORY,
            spec=SummarySpec(structure=structure, **spec),
        )  # fmt: skip
        found, join = run(plan, joined)
        assert len(found) == joined.pairs
        insert[structure], hit[structure] = join.figures.t_ins, join.figures.t_hit
    assert insert["T1"] < insert["T2"] == insert["T3"] < insert["T4"]
    assert hit["T1"] > hit["T2"] > hit["T3"]
    assert hit["T4"] == pytest.approx(hit["T3"], rel=0.05)


# --- the queue --------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 2, 3]), st.integers(0, 5)), max_size=120), st.booleans())
def test_the_heap_equals_sorting(operations: list[tuple[int, int]], own_first: bool) -> None:
    """The twin keeps two lists and takes the least of all, or of the current arrival's while it has any."""
    heap = heap_of(new_heaps(1, 128, own_first=own_first), 0)
    keys = np.array([key for _, key in operations], np.float64)
    out = np.zeros(len(operations), np.int64)
    own: list[list[float]] = []
    others: list[list[float]] = []
    expected = []
    for i, (what, key) in enumerate(operations):
        taken = -1
        if what == 0:
            own.append([key, i])
        elif what == 1:
            others += own
            own = []
        elif own or others:
            entry = min((own or others) if own_first else own + others)
            if what == 2:
                (own if entry in own else others).remove(entry)
                taken = int(entry[1])
            else:
                entry[0] = max(entry[0], key)
                keys[i] = entry[0]
        expected.append(taken)
    replay_operations(heap, np.array([what for what, _ in operations], np.int64), keys, out)
    assert out.tolist() == expected
    assert sorted(heap.place.tolist()) == list(range(128))


def test_full_heaps_drop_the_expired_then_grow_then_keep_the_better_half() -> None:
    heaps = new_heaps(1, 8)
    heaps.control[0, WAITING] = 8
    heaps.entry[0, :, TIME] = [0, 1, 2, 3, 4, 5, 6, 7]
    heaps.entry[0, :, ARRIVAL] = np.arange(8)
    heaps.real[0, :, KEY] = [7, 6, 5, 4, 3, 2, 1, 0]

    def kept(heaps: Any) -> list[int]:
        arrivals: list[int] = heaps.entry[0, : heaps.control[0, WAITING], ARRIVAL].tolist()
        return arrivals

    lighter, expired, evicted = roomier(heaps, [4], limit=8)
    assert (expired[0], evicted[0], lighter.place.shape) == (4, 0, (1, 8))
    assert kept(lighter) == [7, 6, 5, 4]
    wider, expired, evicted = roomier(heaps, [0], limit=16)
    assert (expired[0], evicted[0], wider.place.shape, wider.control[0, WAITING]) == (0, 0, (1, 16), 8)
    halved, expired, evicted = roomier(heaps, [0], limit=8)
    assert (expired[0], evicted[0], halved.place.shape) == (0, 4, (1, 8))
    assert kept(halved) == [7, 6, 5, 4]
    assert halved.control[0, OWN] == 0


def test_one_full_heap_makes_room_in_all_and_each_has_its_own_window() -> None:
    heaps = new_heaps(3, 4)
    heaps.control[:, WAITING] = [4, 3, 1]
    heaps.entry[:, :, TIME] = [0, 1, 2, 3]
    heaps.entry[:, :, HIGH] = [1, 2, 3, 4]
    wider, expired, evicted = roomier(heaps, [0, 2, 9], limit=8)
    assert wider.place.shape == (3, 8)
    assert wider.control[:, WAITING].tolist() == [4, 1, 0]
    assert (expired.tolist(), evicted.tolist()) == ([0, 2, 1], [0, 0, 0])
    assert wider.entry[0, :4, HIGH].tolist() == [4, 3, 2, 1]
