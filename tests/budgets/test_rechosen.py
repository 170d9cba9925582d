"""A whole answer that will not be done in time is broken off, and its rest drawn or written, the best keys first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.experiments.benchmarks.truth.family import FAMILY, made
from nile.operators.common.data import Outputs
from nile.operators.common.plan import JoinPlan, default_spec
from nile.operators.inputs.joining import Joinable
from nile.operators.join.chain_join import ChainJoin
from nile.operators.strategies import join as strategies
from nile.operators.strategies import rechosen
from nile.operators.strategies.choice import Choice
from nile.operators.strategies.join import StrategyJoin
from nile.operators.strategies.rechosen import Rest, Watch
from nile.preferences.budget import Budget
from nile.summaries.costs import MACHINE

Array = np.ndarray[Any, Any]
MANY = "one key is half"


class Halting:
    """A clock that halts but while pairs of a whole answer are found."""

    limits, worked, crowded = True, 1.0, 1.0

    def __init__(self) -> None:
        self.elapsed = self.owed = 0.0


def plan_of(joined: Joinable, preference: str, seconds: float, seed: int = 0) -> JoinPlan:
    return JoinPlan(
        window=joined.window, budget=Budget(seconds=seconds), preference=preference, preferred=True, strategy="auto",
        costs=MACHINE, spec=default_spec(joined.window), seed=seed,
    )  # fmt: skip


def pairs(parts: list[Outputs]) -> list[tuple[int, int]]:
    left, right = (
        np.concatenate([np.zeros(0, np.int64), *each]) for each in zip(*(p.ordinals for p in parts), strict=True)
    )
    return list(zip(left.tolist(), right.tolist(), strict=True))


Run = Callable[..., tuple[StrategyJoin, list[Outputs]]]


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a plan in small batches by a clock on which the whole answer takes so many times as long as it is given."""
    monkeypatch.setattr(rechosen, "_TOLD", 1.0)
    monkeypatch.setattr(strategies, "_BATCH", 1)
    monkeypatch.setattr(Choice, "way", "exact")
    monkeypatch.setenv("NILE_PRICES", "shipped")
    whole = ChainJoin.run

    def run(
        joined: Joinable, preference: str, times: float, seed: int = 0, slow: float = 0.0
    ) -> tuple[StrategyJoin, list[Outputs]]:  # slow: of the time there is, in which pairs take ten times as long
        clock = Halting()
        join = StrategyJoin(plan_of(joined, preference, 1.0, seed), joined, clock)  # type: ignore[arg-type]
        parts = list(whole(ChainJoin(join.plan, joined)))
        count = sum(map(len, parts))
        # For a pair less than one of a sample takes.
        tuples = sum(map(len, joined.streams))
        join.choice.grant = grant = 2.0 * join.choice.work.listing(tuples, join.choice.work.keys) + 2.0 * count
        each = times * grant / count

        def small(self: ChainJoin) -> Iterator[Outputs]:  # noqa: ARG001
            for part in parts:
                for begin in range(0, len(part), 50):
                    at = slice(begin, begin + 50)
                    made = Outputs(left=part.left[at], right=part.right[at], weight=part.weight[at])
                    clock.elapsed += each * len(made) * (10.0 if clock.elapsed < slow * grant else 1.0)
                    yield made

        monkeypatch.setattr(ChainJoin, "run", small)
        found = list(join.run())
        monkeypatch.setattr(ChainJoin, "run", whole)
        return join, found

    return run


@pytest.mark.parametrize("name", FAMILY)
def test_what_was_written_and_the_rest_are_all_pairs_wherever_it_is_broken_off(name: str) -> None:
    joined = made(name, 300, 1)
    every = Outputs(left=np.zeros(0, np.int64), right=np.zeros(0, np.int64), weight=np.zeros(0))
    parts = list(ChainJoin(plan_of(joined, "desc", 1.0), joined).run())
    if parts:
        left, right = (np.concatenate(each) for each in zip(*(part.ordinals for part in parts), strict=True))
        every = Outputs(left=left, right=right, weight=np.ones(left.shape[0]))
    watch = Watch.__new__(Watch)
    watch._joined = joined
    for cut in np.linspace(1, len(every), 8).astype(int)[: len(every)]:
        before, first = watch._before(every.first(int(cut)))
        rest = Rest(joined, first)
        rest.count()
        found = list(rest.written(1 << 60))
        assert sorted(pairs([before]) + pairs(found)) == sorted(pairs([every]))
        assert rest.pairs == sum(map(len, found)) == int(rest.by_key.sum())
        assert len(before) < cut  # the last arrival is begun anew
        assert sum(map(len, rest.written(rest.pairs // 3))) == rest.pairs // 3


def test_an_answer_that_is_done_in_time_is_not_re_chosen(slowly: Run) -> None:
    joined = made(MANY, 600, 2)
    for preference in ("desc", "weighted"):
        join, parts = slowly(joined, preference, 0.6)
        assert not join.rechosen
        assert join.total.certified
        assert len(pairs(parts)) == join.total.value


def test_the_first_pairs_in_memory_that_is_handed_out_anew_tell_no_pace(slowly: Run) -> None:
    joined = made(MANY, 600, 2)
    for preference in ("desc", "weighted"):
        join, parts = slowly(joined, preference, 0.4, slow=0.08)
        assert not join.rechosen
        assert len(pairs(parts)) == join.total.value
        assert slowly(joined, preference, 1.5, slow=0.08)[0].rechosen


@pytest.mark.parametrize("name", [MANY, "late heavy key", "zipf 1", "blow-up", "null keys"])
def test_a_sample_that_was_begun_as_a_whole_tells_the_total_and_has_no_pair_twice(slowly: Run, name: str) -> None:
    joined = made(name, 600, 2)
    exact = pairs(list(ChainJoin(plan_of(joined, "desc", 1.0), joined).run()))
    join, parts = slowly(joined, "weighted", 3.0)
    found, weight = pairs(parts), np.concatenate([part.weight for part in parts])
    assert "re-chosen: exact, after" in join.explain()[-1]
    assert join.total.value == len(exact)
    assert join.total.certified
    assert len(set(found)) == len(found) < len(exact)
    assert set(found) <= set(exact)
    assert (weight >= 1.0).all()
    assert weight.sum() == pytest.approx(len(exact), abs=2.0 * weight.max())  # a tick more or less of either join


def test_each_pair_counts_once_in_the_mean_of_samples_that_were_re_chosen(slowly: Run) -> None:
    joined, runs = made(MANY, 120, 3), 60
    exact = pairs(list(ChainJoin(plan_of(joined, "desc", 1.0), joined).run()))
    counted = dict.fromkeys(exact, 0.0)
    for seed in range(runs):
        _, parts = slowly(joined, "weighted", 3.0, seed)
        for part in parts:
            for pair, weight in zip(pairs([part]), part.weight, strict=True):
                counted[pair] += weight / runs
    mean = np.array(list(counted.values()))
    assert mean.mean() == pytest.approx(1.0, abs=0.01)
    late = mean[len(mean) // 2 :]
    assert late.mean() == pytest.approx(1.0, abs=0.02)


def test_the_rest_under_desc_is_that_of_the_keys_with_most(slowly: Run) -> None:
    joined = made("blow-up", 2_000, 2)
    exact = set(pairs(list(ChainJoin(plan_of(joined, "desc", 1.0), joined).run())))
    join, parts = slowly(joined, "desc", 2.0)
    found = pairs(parts)
    assert join.rechosen.endswith("written, the best keys first")
    assert len(set(found)) == len(found)
    assert set(found) <= exact


def test_budget_and_explain_say_that_a_plan_was_re_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Choice, "way", "exact")
    monkeypatch.setattr(Watch, "why", "exact, after 1.0 ms and 10 pairs: all would have taken 9.0 of 2.0 ms")
    asked = nile.Budget(seconds=60.0)
    db = nile.connect()
    for name, stream in zip("ab", made("zipf 1", 300).streams, strict=True):
        db.register(name, pa.table({"t": stream.ts / 1e9, "k": stream.key.combine_chunks()}), time="t")

    def late(self: Watch, parts: Iterator[Outputs]) -> Iterator[Outputs]:
        for part in parts:
            before, self.first = self._before(part)
            yield before
            return

    text = "SELECT a.k FROM a, b WHERE a.k = b.k WITH PREFERENCE desc a.k WINDOW 100"
    whole = db.sql(text, budget=asked, costs="machine")
    rows = whole.to_arrow().num_rows
    assert whole.budget.rechosen == ""
    monkeypatch.setattr(Watch, "until_late", late)
    again = db.sql(text, budget=asked, costs="machine")
    assert again.to_arrow().num_rows == rows
    assert again.budget.rechosen == Watch.why
    told = db.sql(f"EXPLAIN ANALYZE {text} BUDGET 60 SECONDS", costs="machine").to_arrow().column("plan")[0].as_py()
    assert f"re-chosen: {Watch.why}" in " ".join(told.split())
