"""Joins of n streams and joins under a condition on the pair, inside budgets that kernels cannot count."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from workload_join import SECOND
from workload_multiway import Found, assert_honest, brute_force, even, joinable, operator, plan_of

import nile
from nile.operators.common import plan as plans
from nile.operators.drive.metered import MeteredRun, load_kernels
from nile.operators.drive.wall_clock import run_live
from nile.operators.inputs.multiway import MultiwayJoinable
from nile.operators.multiway.multiway import METHODS, Combinations, MultiwayJoin
from nile.preferences.budget import BUDGET_UNITS, Budget
from nile.preferences.clock import Pace
from nile.preferences.preference import PREFERENCES
from nile.preferences.wall import WallBudget, WallClock

WINDOW = 60 * SECOND
CLOSE = 0.05  # of the share asked


def small(seed: int, streams: int, *, n: int = 1_500, keys: int = 250) -> MultiwayJoinable:
    return joinable(seed, streams=streams, n=n, keys=keys, window=WINDOW, gap=2)


def metered(
    plan: plans.JoinPlan, joined: MultiwayJoinable, units_a_ns: float = 1.0
) -> tuple[Found, MultiwayJoin, MeteredRun[Combinations]]:
    """A run on a machine whose CPU time only the join's spending moves."""
    join = operator(plan, joined)
    run = MeteredRun(join, cpu=lambda: round(join.spent / units_a_ns))
    return members(join, joined, list(run.run())), join, run


def members(join: MultiwayJoin, joined: MultiwayJoinable, parts: list[Combinations]) -> Found:
    found: Found = []
    for part in parts:
        at = join.expand(part).members
        assert at is not None
        found += map(tuple, joined.ordinal[at].tolist())
    return found


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("preference", PREFERENCES)
@pytest.mark.parametrize("streams", [2, 3, 4])
@pytest.mark.parametrize("conditioned", [False, True])
def test_outputs_are_at_most_as_many_as_asked_and_close_to_it(
    method: str, preference: str, streams: int, conditioned: bool
) -> None:
    joined = small(3, streams, n={2: 1_000, 3: 600, 4: 300}[streams], keys={2: 200, 3: 150, 4: 120}[streams])
    truth = brute_force(joined.streams, WINDOW)
    if conditioned:
        joined = even(joined)
        truth = {one for one in truth if sum(one[:2]) % 2 == 0}
    asked = len(truth) // 3
    plan = plan_of(
        WINDOW, 1.0, method=method, preference=preference, guide="directory", outlier_cap=streams + 2
    ).changed(Budget(outputs=asked))
    found, join, run = metered(plan, joined)
    assert_honest(plan, found, join, truth)
    assert len(found) == run.spent <= asked
    assert preference == "asc" or len(found) >= 0.8 * asked
    assert metered(plan, joined, units_a_ns=50.0)[0] == found


@pytest.mark.parametrize("streams", [2, 3])
@pytest.mark.parametrize("conditioned", [False, True])
def test_more_outputs_than_there_are_give_them_all_under_desc(streams: int, conditioned: bool) -> None:
    joined = small(5, streams, keys=400)
    truth = brute_force(joined.streams, WINDOW)
    if conditioned:
        joined = even(joined)
        truth = {one for one in truth if sum(one[:2]) % 2 == 0}
    plan = plan_of(WINDOW, 1.0, guide="directory").changed(Budget(outputs=10 * len(truth)))
    found, join, run = metered(plan, joined)
    assert_honest(plan, found, join, truth)
    assert run.spent == len(found) >= 0.95 * len(truth)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("guide", plans.GUIDES)
@pytest.mark.parametrize("units_a_ns", [0.02, 5.0])
def test_cpu_seconds_are_kept_whatever_an_operation_costs(method: str, guide: str, units_a_ns: float) -> None:
    joined = small(4, 3, n=4_000, keys=60)
    arrivals = 12_000
    seconds = 20.0 * arrivals / units_a_ns / 1e9  # less than either method could use
    for budget in (Budget(seconds=seconds), Budget(seconds_per_tuple=seconds / arrivals)):
        plan = plan_of(WINDOW, 1.0, method=method, guide=guide).changed(budget)
        found, join, run = metered(plan, joined, units_a_ns)
        assert len(found) == len(set(found)) > 0
        assert join.figures.spent <= join.figures.granted * (1 + 1e-9)
        assert run.spent == pytest.approx(budget.amount, rel=0.1)
        assert run.spent <= budget.amount * 1.02


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("conditioned", [False, True])
def test_when_the_seconds_are_used_the_rest_is_shed_and_accounted_for(method: str, conditioned: bool) -> None:
    """Looking at a clock costs 5 us on this machine, and there are but 100 us for 47 quanta."""
    joined = small(4, 3, n=4_000, keys=60)
    plan = plan_of(WINDOW, 1.0, method=method).changed(Budget(seconds=1e-4))
    join = operator(plan, even(joined) if conditioned else joined)
    looks = iter(range(0, 10**9, 5_000))
    run = MeteredRun(join, cpu=lambda: next(looks) + round(join.spent))
    found = members(join, joined, list(run.run()))
    figures = join.figures
    assert run.spent == pytest.approx(1e-4, rel=0.1)
    assert figures.arrivals == 12_000
    assert figures.admitted + figures.nulls + sum(figures.shed) == 12_000
    assert sum(figures.shed) > 3_000
    assert figures.outputs == len(found)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("streams", [2, 3, 16])
def test_loading_kernels_takes_tuples_in_and_ends_zones(method: str, streams: int) -> None:
    joined = joinable(1, streams=streams, n=4, keys=4, window=WINDOW)
    example = operator(plan_of(None, 1.0, method=method).changed(Budget(seconds=1.0)), joined).example()
    load_kernels(example)
    figures = example.figures
    assert figures.arrivals == 4_096 == figures.admitted + sum(figures.shed)
    assert figures.admitted > 0


class World:
    """Wall time that only sleeping moves, and CPU time that only the join's spending moves."""

    def __init__(self, join: MultiwayJoin, units_a_second: float) -> None:
        self.join = join
        self.rate = units_a_second / 1e9
        self.wall = 0

    def now(self) -> int:
        return self.wall

    def sleep(self, seconds: float) -> None:
        self.wall += round(seconds * 1e9)

    def cpu(self) -> int:
        return round(self.join.spent / self.rate)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("conditioned", [False, True])
def test_a_join_under_the_wall_clock_is_honest_and_keeps_to_its_share(method: str, conditioned: bool) -> None:
    joined = small(9, 3, n=1_000, keys=100)
    truth = brute_force(joined.streams, WINDOW)
    if conditioned:
        joined = even(joined)
        truth = {one for one in truth if sum(one[:2]) % 2 == 0}
    plan = plan_of(WINDOW, 1.0, method=method, pace=Pace("data"), waiting=50)
    for share, speed_of_machine in ((0.1, 1e4), (0.5, 1e9)):
        join = operator(plan, joined)
        world = World(join, speed_of_machine)
        clock = WallClock(WallBudget(share, quantum=1.0), cpu=world.cpu)
        found = members(join, joined, list(run_live(join, clock, now=world.now, sleep=world.sleep)))
        assert_honest(plan, found, join, truth)
        assert clock.share <= share * (1 + CLOSE)
        assert join.fed == 3_000
        assert found


# --- as a user asks for it --------------------------------------------------------------------------------


@pytest.fixture
def database() -> nile.Database:
    rng = np.random.default_rng(8)
    db = nile.connect()
    for name in ("a", "b", "c"):
        keys = (60 * rng.random(1_000) ** 2).astype(np.int64)
        table = pa.table({"t": np.cumsum(rng.integers(0, 3, 1_000)), "k": keys, "v": rng.integers(0, 9, 1_000)})
        db.register(name, table, time="t")
    return db


BUDGETS = [Budget(share=0.5), Budget(seconds_per_tuple=1e-5), Budget(seconds=0.02), Budget(outputs=70)]


@pytest.mark.parametrize("budget", BUDGETS, ids=lambda budget: budget.unit)
@pytest.mark.parametrize("streams", [("a", "b"), ("a", "b", "c")])
def test_a_query_says_what_it_asked_and_spent_in_the_unit_of_its_budget(
    database: nile.Database, budget: nile.Budget, streams: tuple[str, ...]
) -> None:
    """0.2 s of input at 5,000 times its pace; no figure of the machine's speed is asserted."""
    query = database.join(*streams, on="k", window="40 s", where="a.v + b.v < 12").prefer("desc")
    answer = query.replayed("data", speed=5_000).run(budget)
    rows = answer.to_arrow()
    told = answer.budget
    assert (told.asked, told.unit, told.reproducible) == (budget.amount, budget.unit, budget.is_reproducible)
    assert told.spent > 0
    assert told.fraction > 0
    assert rows.num_rows <= query.run().to_arrow().num_rows
    assert (answer.cpu_seconds is None) == (budget.unit == "outputs")
    if budget.unit == "outputs":
        assert told.spent == rows.num_rows <= 70
    for stream in answer.accounting.values():
        stream.check()
    assert ("by the wall clock" in query.replayed("data").explain(budget)) != budget.is_reproducible


@pytest.mark.parametrize("unit", BUDGET_UNITS[2:])
def test_a_statement_over_three_streams_takes_every_budget(database: nile.Database, unit: str) -> None:
    amount = {"seconds_per_tuple": 1e-3, "seconds": 1.0, "outputs": 50, "deadline": 30.0}[unit]
    rows = database.sql(
        "SELECT a.k, a.v AS x, c.v AS y FROM a, b, c WHERE a.k = b.k AND b.k = c.k WITH PREFERENCE desc WINDOW 40 s",
        budget=Budget.of(unit, amount),
    )
    assert rows.to_arrow().num_rows > 0
    assert rows.budget.unit == unit
    for stream in rows.accounting.values():
        stream.check()
