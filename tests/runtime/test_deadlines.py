"""Standing joins and selections within time: each push by a deadline, or so much CPU time, in the order asked for."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from workload_live import gone_on, opened, push_all, sales

import nile
from nile.execution.live.commits import Commits
from nile.operators.common.plan import JoinPlan
from nile.operators.drive import live
from nile.operators.drive.live import LiveRun
from nile.operators.drive.live_budget import Deadline, Meter, PerTuple, Purse, Share
from nile.operators.drive.live_join import LiveJoin
from nile.operators.drive.live_multiway import LiveMultiway
from nile.preferences.budget import Budget
from nile.preferences.clock import Pace

SECOND = 10**9
JOIN = (
    "SELECT a.seq AS l, b.seq AS r, a.item FROM a, b WHERE a.item = b.item {} WITH PREFERENCE {} a.item WINDOW '60 s'"
)
SELECTION = "SELECT item, price FROM a WHERE item BETWEEN 'i1' AND 'i3' AND price > 2 WITH PREFERENCE {} item"


class SlowMachine:
    """A wall clock on which a unit of the cost table takes so many ns, an arrival more, and now and then it halts."""

    def __init__(self, unit: float, *, arrival: float = 0.0, hiccup: float = 0.0, seed: int = 0) -> None:
        self.operator: Any = None
        self.now = 0.0
        self.pushes = 0
        self._unit, self._arrival, self._hiccup = unit, arrival, hiccup
        self._rng = np.random.default_rng(seed)
        self._spent = self._fed = 0.0

    def __call__(self) -> int:
        spent, fed = self.operator.spent, self.operator.fed
        self.now += self._unit * (spent - self._spent) + self._arrival * (fed - self._fed) + 1_000.0
        if self._rng.random() < 0.02:
            self.now += self._hiccup
        self._spent, self._fed = spent, fed
        return int(self.now)


def streams(seed: int, n: int = 3_000, keys: int = 300) -> tuple[tuple[np.ndarray[Any, Any], pa.Array], ...]:
    made = []
    for k in (0, 1):
        rng = np.random.default_rng([seed, k])
        ts = np.sort(rng.integers(0, 600 * SECOND, n))
        made.append((ts, pa.array(rng.zipf(1.3, n) % keys)))
    return tuple(made)


def timed(unit: str, seconds: float, clock: SlowMachine, steps: int) -> tuple[Budget, Purse]:
    """So much for each push, by this clock, whatever the time is of."""
    if unit == "deadline":
        return Budget(deadline=seconds), Deadline(seconds, clock)
    if unit == "seconds_per_tuple":
        each = seconds * steps / sum(len(ts) for ts, _ in streams(7))
        return Budget(seconds_per_tuple=each), PerTuple(each, clock)
    return Budget(share=0.25), Share(0.25, clock, lambda: int(4 * SECOND * seconds * clock.pushes))


def run(
    preference: str,
    seconds: float,
    clock: SlowMachine,
    *,
    seed: int = 0,
    window: int = 60,
    steps: int = 40,
    unit: str = "deadline",
) -> tuple[list[tuple[int, int]], float, list[float], LiveJoin]:
    """(pairs, sum of weights, ns each push took, the join)."""
    budget, purse = timed(unit, seconds, clock, steps)
    pace = Pace("data") if unit == "share" else Pace()
    join = LiveJoin(JoinPlan(window=window * SECOND, budget=budget, preference=preference, seed=seed, pace=pace))
    clock.operator = join
    driver: LiveRun[Any] = LiveRun(join)
    driver._meter = Meter(purse)
    pairs, weight, took = [], 0.0, []
    sides = streams(7)
    for end in np.linspace(0, 600 * SECOND, steps + 1)[1:]:
        cut = [int(np.searchsorted(ts, end)) for ts, _ in sides]
        ts, keys = zip(*((ts[:k], key.slice(0, k)) for (ts, key), k in zip(sides, cut, strict=True)), strict=True)
        sides = tuple((ts[k:], key.slice(k)) for (ts, key), k in zip(sides, cut, strict=True))
        began = clock.now
        clock.pushes += 1
        for found in driver.take(ts, keys, int(began)):
            pairs += zip(found.left.tolist(), found.right.tolist(), strict=True)
            weight += float(np.sum(found.weight))
        took.append(clock.now - began)
    for _ in range(50):  # what waits goes on with the time that nothing else takes
        for found in driver.take((np.zeros(0, np.int64),) * 2, (pa.array([], pa.int64()),) * 2):
            pairs += zip(found.left.tolist(), found.right.tolist(), strict=True)
            weight += float(np.sum(found.weight))
    assert driver.budget.unit == unit
    if unit == "deadline":
        assert driver.budget.spent >= max(took) / SECOND - 1e-9
    return pairs, weight, took, join


def exact(window: int = 60) -> set[tuple[int, int]]:
    (left_ts, left), (right_ts, right) = streams(7)
    near = np.abs(left_ts[:, None] - right_ts[None, :]) <= window * SECOND
    same = left.to_numpy()[:, None] == right.to_numpy()[None, :]
    return set(zip(*(each.tolist() for each in np.nonzero(near & same)), strict=True))


@pytest.mark.parametrize("preference", ["desc", "asc"])
def test_pushes_are_answered_in_time_and_more_time_finds_no_less(preference: str) -> None:
    truth, found = exact(), []
    for seconds in (0.00003, 0.0001, 0.0003, 0.001, 1.0):
        clock = SlowMachine(0.5, arrival=20.0, hiccup=0.1 * seconds * SECOND)
        pairs, _, took, join = run(preference, seconds, clock)
        assert len(set(pairs)) == len(pairs)
        assert set(pairs) <= truth
        late = [ns for ns in took if ns > 1.05 * seconds * SECOND]
        assert len(late) <= len(took) // 10, (seconds, late)
        assert max(took) <= 2.0 * seconds * SECOND
        assert join.figures.arrivals == sum(len(ts) for ts, _ in streams(7))
        found.append(len(pairs))
    assert found == sorted(found)
    if preference == "desc":
        assert found[0] < found[-1] == len(truth)
    else:  # outliers take hardly any time
        assert found[0] == found[-1] > 0


@pytest.mark.parametrize(
    ("unit", "seconds"),
    [("deadline", 0.004), *itertools.product(["deadline", "seconds_per_tuple", "share"], [0.0004, 0.001])],
)
def test_a_sample_is_right_on_average_whatever_the_clock_does(unit: str, seconds: float) -> None:
    truth = len(exact())
    told, covered = [], 0
    for seed in range(60):
        clock = SlowMachine(3.0, arrival=10.0, hiccup=0.5 * seconds * SECOND, seed=seed)
        _, weight, _, join = run("weighted", seconds, clock, seed=seed, steps=20, unit=unit)
        told.append(weight / truth)
        covered += join.estimate.covers(truth)
    assert min(told) < max(told)
    assert np.mean(told) == pytest.approx(1.0, abs=3.5 * np.std(told) / 60**0.5)
    assert covered >= 54


def test_a_sample_of_three_streams_is_right_on_average_within_cpu_time() -> None:
    rng = np.random.default_rng(3)
    sides = [
        (np.sort(rng.integers(0, 600 * SECOND, 500)), pa.array(rng.zipf(1.3, 500) % 100, pa.int64())) for _ in range(3)
    ]
    told, covered, truth = [], 0, 0
    for seed in range(60):
        plan = JoinPlan(window=60 * SECOND, budget=Budget(seconds_per_tuple=2e-6), preference="weighted", seed=seed)
        join = LiveMultiway(plan, 3)
        clock = SlowMachine(1.0, arrival=10.0, hiccup=100_000.0, seed=seed)
        clock.operator = join
        driver: LiveRun[Any] = LiveRun(join)
        driver._meter = Meter(PerTuple(2e-6, clock))
        weight, began = 0.0, [0, 0, 0]
        for until in np.linspace(0, 600 * SECOND, 21)[1:]:
            ends = [int(np.searchsorted(ts, until, side="right")) for ts, _ in sides]
            came = tuple(ts[a:b] for (ts, _), a, b in zip(sides, began, ends, strict=True))
            keys = tuple(key.slice(a, b - a) for (_, key), a, b in zip(sides, began, ends, strict=True))
            weight += sum(float(np.sum(found.weight)) for found in driver.take(came, keys))
            began = ends
        truth = join.matches
        told.append(weight / truth)
        covered += join.estimate.covers(truth)
    assert truth > 10_000
    assert min(told) < max(told)
    assert np.mean(told) == pytest.approx(1.0, abs=3.5 * np.std(told) / 60**0.5)
    assert covered >= 54


@pytest.mark.parametrize("unit", ["seconds_per_tuple", "share"])
def test_more_cpu_time_finds_more_and_no_more_than_it_is_used(unit: str) -> None:
    truth, found = exact(), []
    for seconds in (0.00003, 0.0003, 0.001, 1.0):
        clock = SlowMachine(0.5, arrival=20.0)
        pairs, _, took, _ = run("desc", seconds, clock, unit=unit)
        assert len(set(pairs)) == len(pairs)
        assert set(pairs) <= truth
        assert sum(took) <= 1.1 * 40 * max(seconds, 0.0001) * SECOND
        found.append(len(pairs))
    assert found == sorted(found)
    assert found[0] < found[-1] == len(truth)


@pytest.mark.parametrize("unit", ["deadline", "seconds_per_tuple", "share"])
def test_a_sample_with_time_for_all_is_all(unit: str) -> None:
    pairs, weight, _, _ = run("weighted", 1.0, SlowMachine(1.0), unit=unit)
    assert set(pairs) == exact()
    assert weight == len(pairs)


@pytest.mark.parametrize("preference", ["desc", "weighted"])
def test_kernels_are_loaded_before_the_first_push(preference: str) -> None:
    join = LiveJoin(JoinPlan(window=60 * SECOND, budget=Budget(deadline=1.0), preference=preference))
    example = join.example()
    assert type(example.sampler) is type(join.join.sampler)
    assert sum(len(found) for found in example.advance(example.arrivals, credit=1e9)) > 0


@pytest.fixture(params=["in Python", "in SQL"])
def asked(request: pytest.FixtureRequest) -> Callable[[nile.Database, str], Any]:
    """A standing query that has a minute for each push."""

    def subscribe(db: nile.Database, text: str) -> Any:
        if request.param == "in SQL":
            return db.subscribe(f"{text} BY DEADLINE '1 min'")
        return db.subscribe(text, budget=nile.Budget(deadline=60.0))

    return subscribe


@pytest.mark.parametrize("text", [JOIN.format("", "{}"), JOIN.format("AND a.price < b.price", "{}"), SELECTION])
def test_time_enough_finds_all_whoever_asks(text: str, asked: Callable[[nile.Database, str], Any]) -> None:
    tables = {"a": sales(31, 2_000, keys=40), "b": sales(32, 2_000, keys=40)}
    whole = opened(tables)
    every = whole.subscribe(text.split(" WITH ")[0] + (" WINDOW '60 s'" if "WINDOW" in text else ""))
    push_all(whole, tables, 1, 500)
    every.close()
    wanted = sorted(tuple(row.values()) for batch in every.poll() for row in batch.to_pylist())
    for preference in ("desc", "weighted") if "a.item" in text else ("desc", "asc"):
        db = opened(tables)
        standing = asked(db, text.format(preference))
        push_all(db, tables, 1, 500)
        if preference == "desc":
            standing = gone_on(db, standing, text.format(preference), budget=nile.Budget(deadline=60.0))
        standing.close()
        rows = [row for batch in standing.poll() for row in batch.to_pylist()]
        if preference == "weighted":
            assert {row.pop("_weight") for row in rows} == {1.0}
        assert sorted(tuple(row.values()) for row in rows) == wanted != []
        assert standing.budget.unit == "deadline"
        assert standing.budget.asked == 60.0
        assert 0.0 < standing.budget.spent < 60.0
        assert not standing.budget.reproducible
        for told in standing.accounting.values():
            told.check()


def test_three_streams_are_joined_in_time() -> None:
    tables = {name: sales(seed, 600, keys=20) for seed, name in enumerate("abc")}
    text = "SELECT a.seq AS l, b.seq AS m, c.seq AS r FROM a, b, c WHERE a.item = b.item AND b.item = c.item"
    whole = opened(tables)
    every = whole.subscribe(text + " WINDOW '20 s'")
    push_all(whole, tables, 1, 200)
    every.close()
    wanted = sorted(tuple(row.values()) for batch in every.poll() for row in batch.to_pylist())
    for preference in ("desc", "weighted"):
        db = opened(tables)
        standing = db.subscribe(f"{text} WITH PREFERENCE {preference} a.item WINDOW '20 s' BY DEADLINE '1 min'")
        push_all(db, tables, 1, 200)
        standing.close()
        rows = [row for batch in standing.poll() for row in batch.to_pylist()]
        assert sum(row.pop("_weight", 1.0) for row in rows) == len(rows)
        assert sorted(tuple(row.values()) for row in rows) == wanted != []


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """When pushes were called, as the driver is told."""
    seen: list[int | None] = []
    take = live.LiveRun.take

    def told(self: Any, ts: Any, keys: Any, began: int | None = None) -> Any:
        seen.append(began)
        return take(self, ts, keys, began)

    monkeypatch.setattr(live.LiveRun, "take", told)
    return seen


def test_the_time_is_that_of_the_push_reading_included(calls: list[int | None]) -> None:
    table = sales(31, 100)
    db = opened({"a": table})
    db.subscribe(SELECTION.format("desc"), budget=nile.Budget(deadline=60.0))
    db.push("a", table.slice(0, 50))
    db.push("a", iter([table.slice(50, 20), table.slice(70, 30)]))
    db.advance(1e6)
    pushes = [began for began in calls if began is not None]
    assert pushes == sorted(pushes)
    assert len(set(pushes)) == 3  # each batch of an iterator is a push
    assert calls[-1] is None


def test_a_push_by_a_callback_has_a_time_of_its_own() -> None:
    commits = Commits()
    with commits.called(5):
        with commits.called(7):
            assert commits.began == 7
        assert commits.began == 5
    assert commits.began is None


def test_what_has_no_deadline_says_why() -> None:
    db = opened({"a": sales(31, 10), "b": sales(32, 10)})
    with pytest.raises(nile.NileError, match="needed WITH PREFERENCE or an aggregate with BUDGET"):
        db.subscribe("SELECT item FROM a BY DEADLINE '1 s'")
    with pytest.raises(nile.NileError, match="standing aggregates: needed a BUDGET as a fraction"):
        db.subscribe("SELECT count(*) AS n FROM a BY DEADLINE '1 s'")
