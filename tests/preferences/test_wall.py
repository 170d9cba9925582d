"""The wall clock, on clocks that the test moves: no real time passes and none is measured."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from workload_join import SECOND, assert_honest, brute_force, joinable

from nile.experiments.benchmarks.budgets.share import random_join
from nile.operators.common.plan import JoinPlan
from nile.operators.drive.wall_clock import run_live
from nile.operators.join.join import PromisingJoin
from nile.preferences.budget import Budget
from nile.preferences.clock import Pace
from nile.preferences.wall import WallBudget, WallClock
from nile.summaries.errors import BudgetError, ConfigError

QUANTUM = 20_000_000
CLOSE = 0.05  # of the share asked


@dataclass
class Machine:
    """A processor that does `rate` units a nanosecond after `overhead` ns a quantum."""

    rate: float
    overhead: int = 0
    cpu: int = 0

    def work(self, units: float) -> None:
        self.cpu += self.overhead + round(units / self.rate)


@pytest.mark.parametrize("share", [0.02, 0.2, 0.9])
@pytest.mark.parametrize("rate", [0.001, 0.1, 40.0])
def test_a_busy_query_gets_the_share_it_asked_for_whatever_an_operation_costs(share: float, rate: float) -> None:
    machine = Machine(rate, overhead=100_000)
    clock = WallClock(WallBudget(share), cpu=lambda: machine.cpu)
    for _ in range(2_000):
        units = clock.credit(QUANTUM)
        machine.work(units)
        clock.settle(units, 0.0)
    assert clock.share == pytest.approx(share, rel=CLOSE)
    assert clock.share == machine.cpu / clock.elapsed


def test_it_follows_a_machine_that_becomes_slow() -> None:
    machine = Machine(10.0)
    clock = WallClock(WallBudget(0.3), cpu=lambda: machine.cpu)
    for step in range(4_000):
        machine.rate = 10.0 if step < 2_000 else 0.5
        units = clock.credit(QUANTUM)
        machine.work(units)
        clock.settle(units, 0.0)
    assert clock.share == pytest.approx(0.3, rel=CLOSE)


def test_time_without_work_is_not_saved_up() -> None:
    """Half of the time idle (its credit expires), then busy: the busy half alone keeps to the share."""
    machine = Machine(1.0)
    clock = WallClock(WallBudget(0.2), cpu=lambda: machine.cpu)
    for step in range(2_000):
        units = clock.credit(QUANTUM)
        if step >= 1_000:
            machine.work(units)
        clock.settle(units if step >= 1_000 else 0.0, 0.0)
    assert clock.share == pytest.approx(0.1, rel=CLOSE)


def test_credit_that_is_held_back_keeps_its_worth() -> None:
    """An operator that saves for four quanta and spends in the fifth uses its whole share."""
    machine = Machine(1.0)
    clock = WallClock(WallBudget(0.2), cpu=lambda: machine.cpu)
    held = 0.0
    for step in range(5_000):
        held += clock.credit(QUANTUM)
        spent = held if step % 5 == 4 else 0.0
        if spent:
            machine.work(spent)
        held -= spent
        clock.settle(spent, held)
    assert clock.share == pytest.approx(0.2, rel=CLOSE)


def test_a_consumer_s_time_does_not_count() -> None:
    machine = Machine(1.0)
    clock = WallClock(WallBudget(0.5), cpu=lambda: machine.cpu)
    units = clock.credit(QUANTUM)
    machine.work(units)
    clock.settle(units, 0.0)
    used = clock.used
    machine.cpu += 5 * QUANTUM
    clock.resume()
    clock.credit(QUANTUM)
    clock.settle(0.0, 0.0)
    assert clock.used == used


@pytest.mark.parametrize("share", [0.0, -0.1, 1.5, float("nan"), "a lot"])
def test_a_share_outside_its_range_is_refused(share: float) -> None:
    with pytest.raises(BudgetError, match="needed a share of a core"):
        WallBudget(share)


def test_a_quantum_outside_its_range_is_refused() -> None:
    with pytest.raises(BudgetError, match="needed a quantum"):
        WallBudget(0.2, quantum=0.0)


# --- a join under it --------------------------------------------------------------------------------------


class World:
    """Wall time that only sleeping moves, and CPU time that only the join's spending moves."""

    def __init__(self, join: PromisingJoin, units_a_second: float) -> None:
        self.join = join
        self.rate = units_a_second / 1e9
        self.wall = 0

    def now(self) -> int:
        return self.wall

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.wall += round(seconds * 1e9)

    def cpu(self) -> int:
        return round(self.join.spent / self.rate)


@pytest.mark.parametrize("method", ["nile", "paper", "hash-drop", "hash-backlog", "scan"])
def test_a_join_under_the_wall_clock_is_honest_and_keeps_to_its_share(method: str) -> None:
    joined = joinable(9, n=1_500, keys=30, window=60 * SECOND)
    plan = JoinPlan(window=joined.window, budget=Budget(1.0), method=method, pace=Pace("data"), waiting=50)
    for share, speed_of_machine in ((0.1, 1e4), (0.5, 1e9)):
        join = PromisingJoin(plan, joined.input(plan.costs, ranges=False))
        world = World(join, speed_of_machine)
        clock = WallClock(WallBudget(share, quantum=1.0), cpu=world.cpu)
        found = [
            pair
            for out in run_live(join, clock, now=world.now, sleep=world.sleep)
            for pair in zip(out.left.tolist(), out.right.tolist(), strict=True)
        ]
        assert_honest(plan, joined, found, join)
        assert clock.share <= share * (1 + CLOSE)
        if speed_of_machine == 1e9 and method in ("paper", "hash-backlog"):
            assert set(found) == brute_force(joined)
        assert join.fed == len(joined.left) + len(joined.right)


def test_a_live_join_needs_a_replay_an_unread_input_and_a_speed() -> None:
    joined = joinable(1, n=20, keys=3, window=SECOND)
    plan = JoinPlan(window=joined.window, budget=Budget(1.0), method="scan")
    clock = WallClock(WallBudget(0.5))
    join = PromisingJoin(plan, joined.input(plan.costs, ranges=False))
    with pytest.raises(ConfigError, match="needed a plan with replay"):
        next(run_live(join, clock))
    replayed = JoinPlan(window=joined.window, budget=Budget(1.0), method="scan", pace=Pace("data"))
    join = PromisingJoin(replayed, joined.input(plan.costs, ranges=False))
    with pytest.raises(ConfigError, match="speed 0"):
        next(run_live(join, clock, speed=0))


def test_the_share_benchmark_s_join_is_in_time_order() -> None:
    """Its order merges by (ts, stream), as the engine's own does, and its two streams are not empty."""
    data = random_join(1_000, seed=1)
    times = data.times()
    assert (times[1:] >= times[:-1]).all()
    ties = times[1:] == times[:-1]
    assert (data.order[1:][ties] >= data.order[:-1][ties]).all()
    assert data.order.sum() == 500
