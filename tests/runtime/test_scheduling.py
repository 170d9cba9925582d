"""Schedulers hold what the paper prints and what every order tried says; charts are those of their operators."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from nile.runtime.charts import Chart, Meter, Step
from nile.runtime.clairvoyant import least_sizes
from nile.runtime.scheduling import SCHEDULERS, Arrival, Chain, simulate
from nile.summaries.errors import ConfigError

PAPER = ((Step(1, 0.2), Step(1, 0.0)),)
BURST = [Arrival(at) for at in range(1, 8)]
Plan = tuple[tuple[tuple[Step, ...], ...], list[Arrival]]


def plan(seed: int, *, grows: bool = False) -> Plan:
    """One or two paths of one to three operators, three or four batches, some costs 0."""
    rng = np.random.default_rng(seed)
    most = 2.5 if grows else 1.0
    paths = tuple(
        tuple(
            Step(int(rng.integers(0 if rng.random() < 0.2 else 1, 4)), float(rng.random() * most))
            for _ in range(int(rng.integers(1, 4)))
        )
        for _ in range(int(rng.integers(1, 3)))
    )
    batches = int(rng.integers(3, 5))
    return paths, [Arrival(int(rng.integers(0, 6)), int(rng.integers(0, len(paths)))) for _ in range(batches)]


def beyond(seed: int, scheduler: str = "chain", *, grows: bool = False) -> tuple[float, float]:
    """(the most that a scheduler holds beyond the least there is, the bound of Chain)."""
    paths, arrivals = plan(seed, grows=grows)
    sizes = simulate(paths, arrivals, SCHEDULERS[scheduler](paths)).sizes
    least = least_sizes(paths, arrivals, len(sizes) - 1)
    assert all(mine >= best - 1e-9 for mine, best in zip(sizes, least, strict=True))
    used = {each.path for each in arrivals}
    return max(a - b for a, b in zip(sizes, least, strict=True)), sum(Chart.of(paths[at]).excess() for at in used)


def test_the_queues_of_section_4_2_are_those_that_the_paper_prints() -> None:
    first, second = (simulate(PAPER, BURST, SCHEDULERS[name](PAPER)) for name in ("fifo", "chain"))
    assert [round(size, 9) for size in first.sizes[1:8]] == [1, 1.2, 2, 2.2, 3, 3.2, 4]
    assert [round(size, 9) for size in second.sizes[1:8]] == [1, 1.2, 1.4, 1.6, 1.8, 2.0, 2.2]
    assert (max(first.done), max(second.done)) == (15, 15)
    for run in (first, second):
        assert run.sizes[14] > 0
        assert run.sizes[15] == 0
        assert all(after <= before for before, after in zip(run.sizes[7:], run.sizes[8:], strict=False))


def test_chain_holds_at_most_a_batch_a_path_more_than_the_best_order_on_a_thousand_plans() -> None:
    found = [beyond(seed) for seed in range(1_000)]
    assert all(more <= bound + 1e-9 for more, bound in found)
    assert all(bound <= 2 for _, bound in found)
    others = [beyond(seed, "fifo")[0] for seed in range(200)]
    assert np.mean([more for more, _ in found[:200]]) < 0.6 * np.mean(others)


def test_with_operators_that_make_more_of_a_batch_the_bound_is_that_of_their_charts() -> None:
    for seed in range(150):
        more, bound = beyond(seed, grows=True)
        assert more <= bound + 1e-9, seed


def test_a_chart_goes_by_the_steepest_descent_from_each_corner() -> None:
    chart = Chart.of([Step(1, 0.9), Step(1, 0.2), Step(2, 1.5), Step(1, 0.1)])
    assert chart.times == (0, 1, 2, 4, 5)
    assert [round(size, 9) for size in chart.sizes] == [1, 0.9, 0.18, 0.27, 0]
    assert chart.corners() == [0, 2, 4]
    assert [round(each, 9) for each in chart.priorities()] == [0.41, 0.41, 0.06, 0.06]
    assert Chart.of([Step(0, 0.5), Step(1, 0.0)]).corners() == [0, 1, 2]


def test_corners_lie_below_all_points_between_them() -> None:
    for seed in range(300):
        rng = np.random.default_rng(seed)
        chart = Chart.of([Step(float(rng.integers(1, 5)), float(rng.random() * 2)) for _ in range(6)])
        corners, priorities = chart.corners(), chart.priorities()
        assert all(later <= before + 1e-9 for before, later in pairwise(priorities))
        for begin, end in pairwise(corners):
            for at in range(begin, end):
                line = chart.sizes[begin] - priorities[begin] * (chart.times[at] - chart.times[begin])
                assert chart.sizes[at] >= line - 1e-9


def test_under_a_bound_of_latency_no_batch_is_late_that_fifo_could_do_in_time() -> None:
    for seed in range(200):
        paths, arrivals = plan(seed)
        fifo = simulate(paths, arrivals, SCHEDULERS["fifo"](paths))
        chain = simulate(paths, arrivals, Chain(paths))
        bound = max(fifo.latencies)
        kept = simulate(paths, arrivals, Chain(paths, latency=bound))
        assert max(kept.latencies) <= bound
        loose = simulate(paths, arrivals, Chain(paths, latency=1_000))
        assert loose.sizes == chain.sizes


def test_between_both_a_bound_of_latency_trades_memory_for_it() -> None:
    paths = (Step(1, 0.0),), (Step(3, 0.0),)
    arrivals = [Arrival(0, 1), *(Arrival(at) for at in range(20)), Arrival(6, 1)]
    held = []
    for latency in (10, 14, 18, 1_000):
        run = simulate(paths, arrivals, Chain(paths, latency=latency))
        assert max(run.latencies) <= latency or latency == 1_000
        held.append((sum(run.sizes), -max(run.latencies)))
    assert held == sorted(held, reverse=True)
    assert held[0][0] > held[-1][0]
    assert -held[-1][1] > 18


def test_every_scheduler_does_all_the_work_and_never_idles() -> None:
    for seed in range(60):
        paths, arrivals = plan(seed)
        ends = {max(simulate(paths, arrivals, make(paths)).done) for make in SCHEDULERS.values()}
        assert len(ends) == 1


def test_round_robin_takes_operators_in_turn() -> None:
    run = simulate(PAPER, BURST, SCHEDULERS["round-robin"](PAPER))
    assert [round(size, 9) for size in run.sizes[1:5]] == [1, 1.2, 2, 2.2]


def test_the_greedy_one_starves_a_good_operator_behind_a_bad_one_and_chain_does_not() -> None:
    paths = ((Step(1, 1.0), Step(1, 0.0)), (Step(1, 0.8), Step(2, 0.0)))
    arrivals = [Arrival(at, path) for at in range(4) for path in (0, 1)]
    held = {name: sum(simulate(paths, arrivals, SCHEDULERS[name](paths)).sizes) for name in ("greedy", "chain")}
    assert held["chain"] < 0.95 * held["greedy"]


def test_chains_are_formed_anew_as_selectivities_drift() -> None:
    believed = ((Step(1, 0.9), Step(1, 0.1), Step(1, 0.0)), (Step(1, 0.3), Step(1, 0.0)))
    after = (Step(1, 0.05), Step(1, 0.1), Step(1, 0.0)), (Step(1, 0.95), Step(1, 0.0))
    arrivals = [Arrival(2 * at, at % 2, after[at % 2]) for at in range(300)]
    arrivals += [Arrival(900 + at // 2, at % 2, after[at % 2]) for at in range(60)]
    still, moved = Chain(believed), Chain(believed, adapts=True)
    peaks = [max(simulate(believed, arrivals, each).sizes[890:]) for each in (still, moved)]
    best = max(simulate(after, arrivals, Chain(after)).sizes[890:])
    assert moved.formed > 0
    assert peaks[1] <= best + 1 < peaks[0]


def test_a_meter_measures_what_operators_do_to_batches_of_any_size() -> None:
    meter = Meter([Step(1, 1.0), Step(1, 1.0)], memory=5)
    for size in (1, 10, 3) * 30:
        meter.observe(0, 2.0 * size, size, 0.25 * size)
        meter.observe(1, 4.0 * 0.25 * size, 0.25 * size, 0.0)
    assert meter.chart().times == pytest.approx((0, 2, 3))
    assert meter.chart().sizes == pytest.approx((1, 0.25, 0))


def test_what_is_no_plan_is_refused() -> None:
    with pytest.raises(ConfigError, match="progress chart: needed operators"):
        Chart.of([])
    with pytest.raises(ConfigError, match="whole units"):
        simulate(((Step(0.5, 1.0),),), [Arrival(0)], SCHEDULERS["fifo"](PAPER))
