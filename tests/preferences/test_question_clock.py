"""Budgets of CPU seconds and deadlines: one clock from the call to the last batch, and what is refused before."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.operators.drive import clock as clock_module
from nile.operators.drive.clock import Clock, timed
from nile.preferences.budget import Budget
from nile.summaries import lazy
from nile.summaries.errors import BudgetError

TEXT = "SELECT a.k, b.t AS other FROM a, b WHERE a.k = b.k WITH PREFERENCE desc a.k WINDOW '100 s' "


class _Now:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


def _database(n: int = 2_000) -> nile.Database:
    db = nile.connect()
    for seed, name in enumerate("ab"):
        keys = np.random.default_rng(seed).integers(0, 50, n)
        db.register(name, pa.table({"t": pa.array(np.arange(n, dtype=float)), "k": keys}), time="t")
    return db


def test_what_the_caller_does_between_batches_is_not_charged_but_by_a_deadline() -> None:
    for budget, spent in ((Budget(seconds=1.0), 1 + 3 * 1), (Budget(deadline=1.0), 1 + 50 + 3 * 11 + 20)):
        now = _Now()
        clock = Clock(budget, cpu=now, wall=now)
        now.ns += 1  # reading
        clock.pause()
        now.ns += 50

        def parts(now: _Now = now) -> Any:
            for part in range(3):
                now.ns += 1
                yield part

        for _ in timed(parts(), clock):
            now.ns += 10
        now.ns += 20
        assert clock.elapsed == spent
        assert clock.cpu == 1 + 3 * 1
        assert list(timed(iter((1, 2)), None)) == [1, 2]


def test_a_deadline_expects_to_be_slowed_as_it_was_or_as_others_want_the_cores() -> None:
    for waited, crowds, slow in ((0, (1.0, 1.0), 1), (60, (1.0, 1.0), 4), (0, (1.0, 4.0), 2.5), (20, (3.0, 3.0), 3)):
        now, held, told = _Now(), _Now(), iter(crowds)
        clock = Clock(
            Budget(deadline=1.0), cpu=lambda now=now, held=held: now.ns - held.ns, wall=now, waited=held,  # type: ignore[misc]
            crowd=lambda told=told: next(told),  # type: ignore[misc]
        )  # fmt: skip
        now.ns, held.ns = 80, waited
        assert clock.worked == 80 - waited
        assert clock.crowded == slow
    now = _Now()
    clock = Clock(Budget(seconds=1.0), cpu=now, wall=now, waited=lambda: 40, crowd=lambda: 8.0)
    now.ns = 80
    assert (clock.worked, clock.crowded) == (80, 1.0)  # CPU time is its own


def test_a_core_was_had_for_as_long_as_it_worked_whatever_waiting_is_told() -> None:
    now = _Now()
    clock = Clock(Budget(deadline=1.0), cpu=lambda: now.ns // 4, wall=now, waited=lambda: 2 * now.ns, crowd=lambda: 1.0)
    now.ns = 80
    assert clock.worked == 20
    assert clock.crowded == 4.0


def test_where_others_want_the_cores_a_deadline_plans_less(monkeypatch: pytest.MonkeyPatch) -> None:
    db = _database(40_000)
    query = db.join("a", "b", on="k", window="100 s").prefer("desc").using(costs="machine")
    planned = []
    for crowd in (1.0, 8.0):
        monkeypatch.setattr(
            Clock.__init__, "__kwdefaults__", Clock.__init__.__kwdefaults__ | {"crowd": lambda crowd=crowd: crowd}
        )
        planned.append(query.run(Budget(deadline=30.0))._join.choice.planned)
    assert planned[1] < 0.5 * planned[0]


@pytest.mark.parametrize("budget", [Budget(seconds=60.0), Budget(deadline=60.0)])
def test_while_time_is_left_a_prefix_goes_on_with_the_next_part(
    budget: Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("join", "forecast"):
        monkeypatch.setattr(f"nile.operators.strategies.{module}.first_part", lambda *_: 0.25)
    db = _database(2_000)
    query = db.join("a", "b", on="k", window="100 s").prefer("desc")
    answer = query.using(costs="machine", strategy="prefix").run(budget)
    rows, whole = answer.to_arrow(), query.run().to_arrow()
    names = ("left_ordinal", "right_ordinal")
    left, right = (rows[name].to_numpy() for name in names)
    found, every = ({*zip(*(table[name].to_pylist() for name in names), strict=True)} for table in (rows, whole))
    assert len(found) == rows.num_rows
    # Parts of 500 tuples each: both streams have a tuple a second.
    assert found == {pair for pair in every if pair[0] // 500 == pair[1] // 500}
    assert (left // 500).max() == (right // 500).max() == 3
    assert sum(each.shed for each in answer.accounting.values()) == 0


def test_which_budgets_a_clock_bounds() -> None:
    assert not any(Clock(budget).limits for budget in (None, Budget(0.5), Budget(outputs=3), Budget(share=0.5)))
    assert all(Clock(budget).limits for budget in (Budget(seconds=1.0), Budget(seconds_per_tuple=1.0)))
    assert Clock(Budget(deadline=1.0)).limits


def test_what_was_spent_is_told_by_part_with_cpu_time_beside() -> None:
    db = _database(40_000)
    for costs, steps in (
        ("machine", {"read", "look", "admit", "copy", "list", "join", "hand out"}),
        ("engine", {"insert", "hit"}),
    ):
        answer = db.join("a", "b", on="k", window="100 s").prefer("desc").using(costs=costs).run(0.5)
        rows = len(answer.to_arrow())
        told = answer.budget
        assert rows > 0
        assert set(told.parts) <= steps | {"count"}
        assert sum(told.parts.values()) == pytest.approx(told.fraction)
        assert told.cpu_seconds is not None
        assert told.cpu_seconds > 0.0


def test_every_kind_of_answer_tells_what_was_granted_and_spent_by_part_with_cpu_time_beside() -> None:
    db = _database(4_000)
    db.register("c", pa.table({"ts": np.arange(4_000.0), "k": np.arange(4_000) % 50}), time="ts")
    asked = (
        ("SELECT a.k FROM a, b WHERE a.k = b.k WITH PREFERENCE desc a.k WINDOW 100", {"insert", "hit"}),
        (
            "SELECT a.k FROM a, b WHERE a.k = b.k AND a.k + b.k > 8 WITH PREFERENCE desc a.k WINDOW 100",
            {"insert", "hit"},
        ),
        ("SELECT a.k FROM a, b, c WHERE a.k = b.k AND b.k = c.k WITH PREFERENCE desc a.k WINDOW 20", {"insert", "hit"}),
        ("SELECT k FROM a WHERE k < 9 WITH PREFERENCE desc k WINDOW 100", {"summary", "tuples"}),
        ("SELECT k, count(*) AS n FROM a WHERE k < 9 GROUP BY k", {"summary", "tuples"}),
        ("SELECT count(*) AS n FROM a, b WHERE a.k = b.k WINDOW 100", {"insert", "hit"}),
    )
    for text, parts in asked:
        answer = db.sql(f"{text} BUDGET 40 %", costs="engine")
        answer.to_arrow()
        told = answer.budget
        assert set(told.parts) == parts, text
        assert sum(told.parts.values()) == pytest.approx(told.fraction), text
        assert told.granted == pytest.approx(0.4, rel=1e-3), text
        assert 0.0 < told.fraction <= told.granted * (1 + 1e-9), text
        assert told.cpu_seconds is not None, text
        assert told.cpu_seconds > 0.0, text
        timed = db.sql(f"{text} BUDGET 60 SECONDS", costs="engine")
        timed.to_arrow()
        assert timed.budget.granted is None, text  # as asked, in seconds
        assert timed.budget.cpu_seconds == pytest.approx(timed.budget.spent, abs=0.05), text


def test_seconds_of_a_selection_are_those_of_what_finds_its_tuples_too(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks: list[Clock] = []

    def begun(budget: Budget | None) -> Clock:
        clocks.append(Clock(budget))
        return clocks[-1]

    monkeypatch.setattr("nile.answers.bound_selection.Clock", begun)
    answer = _database(40_000).select("a", on="k", predicates={"some": "k < 25"}).run(Budget(seconds=60.0))
    (clock,) = clocks
    read = clock.elapsed
    assert clock.elapsed == read  # nothing is done before it is asked for
    assert answer.to_arrow().num_rows > 10_000
    assert clock.elapsed > read
    assert answer.budget.spent > read / 1e9


@pytest.mark.parametrize("costs", ["engine", "machine"])
@pytest.mark.parametrize("budget", [Budget(seconds=60.0), Budget(deadline=60.0)])
def test_time_enough_finds_everything_and_all_of_it_is_told(budget: Budget, costs: str) -> None:
    db = _database()
    whole = len(db.join("a", "b", on="k", window="100 s").run().to_arrow())
    answer = db.join("a", "b", on="k", window="100 s").prefer("desc").using(costs=costs).run(budget)
    assert len(answer.to_arrow()) == whole
    told = answer.budget
    assert told.unit == budget.unit
    assert 0.0 < told.spent < 60.0
    assert not told.reproducible
    assert len(db.sql(TEXT, budget=budget, costs=costs).to_arrow()) == whole


def test_sql_says_a_deadline_and_prints_it_again() -> None:
    db = _database()
    result = db.sql(TEXT + "BY DEADLINE '30 s'", costs="machine")
    assert len(result.to_arrow()) > 0
    assert result.budget.unit == "deadline"
    assert result.budget.asked == 30.0
    told = db.sql("EXPLAIN " + TEXT + "BY DEADLINE 2")
    assert "2 seconds by the clock" in str(told.to_arrow().to_pylist())
    with pytest.raises(nile.NileError, match="needed BUDGET once"):
        db.sql(TEXT + "BUDGET 0.1 BY DEADLINE '30 s'")
    with pytest.raises(nile.NileError, match="a duration above 0"):
        db.sql(TEXT + "BY DEADLINE 0")


def test_time_that_finds_nothing_is_refused_before_a_row_is_looked_for() -> None:
    db = _database(20_000)
    query = db.join("a", "b", on="k", window="100 s").using(costs="machine")
    for preference in ("desc", "asc", "weighted"):
        for budget in (Budget(seconds=1e-6), Budget(deadline=1e-6)):
            with pytest.raises(BudgetError, match=r"needed .* seconds to pass over 40,000 tuples and find anything"):
                query.prefer(preference).run(budget)


@pytest.mark.parametrize("preference", ["desc", "asc", "weighted"])
def test_so_it_is_where_a_core_is_hardly_had_once_time_is_over(
    preference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Clock, "crowded", 1e6)  # what is left over of nothing is little, however it is divided
    query = _database(2_000).join("a", "b", on="k", window="1 s").using(costs="machine").prefer(preference)
    for where in (None, "a.t < b.t"):
        one = query if where is None else _database(2_000).join("a", "b", on="k", window="1 s", where=where)
        with pytest.raises(BudgetError, match="to pass over 4,000 tuples"):
            one.using(costs="machine").prefer(preference).run(Budget(deadline=3e-4))


def test_selections_and_joins_of_three_have_the_same_clock() -> None:
    db = _database(300)
    db.register("c", pa.table({"t": np.arange(300.0), "k": np.arange(300) % 50}), time="t")
    for budget in (Budget(seconds=600.0), Budget(deadline=600.0)):
        three = db.join("a", "b", "c", on="k", window="30 s").prefer("desc").run(budget)
        assert len(three.to_arrow()) == len(db.join("a", "b", "c", on="k", window="30 s").run().to_arrow())
        assert 0.0 < three.budget.spent < 600.0
        assert len(db.sql("SELECT k FROM a WHERE k < 9 WITH PREFERENCE desc k", budget=budget).to_arrow()) > 0


def test_time_is_charged_as_well_when_the_estimate_is_read_before_the_rows() -> None:
    db = _database(40_000)
    query = db.join("a", "b", on="k", window="300 s").prefer("desc").using(costs="machine")
    for budget in (Budget(seconds=60.0), Budget(deadline=60.0)):
        answer = query.run(budget)
        assert answer.clock is not None
        before = answer.clock.cpu
        assert before == answer.clock.cpu  # nobody asks, nothing is charged
        assert answer.estimate.low > 0
        assert answer.clock.cpu > before
        again = answer.again(Budget(seconds=60.0))
        assert len(again.to_arrow()) == len(answer.to_arrow())
        assert 0.0 < again.budget.spent < 60.0


def test_an_estimate_does_not_find_again_what_was_too_much_to_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nile.answers.kept_outputs._MOST_KEPT", 1)
    db = _database(40_000)
    query = db.join("a", "b", on="k", window="300 s").prefer("weighted").using(strategy="counts")
    answer = query.run(0.6)
    told = answer.estimate
    assert not answer._found.done
    rows = answer.to_arrow()
    assert answer.estimate == told
    assert told.low <= len(query.run().to_arrow()) <= told.high
    assert rows.num_rows > 0


def test_loading_is_counted_once_and_is_no_question_s(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = [0]
    monkeypatch.setattr(lazy.time, "thread_time_ns", lambda: spent[0])
    monkeypatch.setattr(clock_module, "cpu_ns", lambda: spent[0])
    clock, before = Clock(Budget(seconds=1.0)), lazy.loading_ns()
    spent[0] += 5
    with lazy._counted():
        spent[0] += 100
        with lazy._counted():  # a part of that load
            spent[0] += 1_000
    spent[0] += 7
    assert lazy.loading_ns() - before == 1_100
    assert clock.elapsed == clock.cpu == 12


def test_the_first_question_of_a_process_has_its_time_for_itself() -> None:
    asked = """
import nile, numpy as np, pyarrow as pa
db = nile.connect()
for seed, name in enumerate("ab"):
    rng = np.random.default_rng(seed)
    db.register(name, pa.table({"t": np.arange(20_000.0), "k": rng.integers(0, 500, 20_000)}), time="t")
join = "SELECT a.k FROM a, b WHERE a.k = b.k WITH PREFERENCE desc a.k WINDOW '600 s' BUDGET 0.3 SECONDS"
answer = db.sql(join, costs="machine")
print(answer.to_arrow().num_rows > 0, answer.budget.cpu_seconds < 0.3)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]
