"""Shared plans and samples killed at random moments: bit for bit what they are without a kill, given its decisions."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import child_means
import pytest
from child_means import EXACT, SAMPLED, TOGETHER, opened, push, reached, seen, taken
from fork_server import ForkServer
from store_killer import ROOT, in_memory, kill_over_and_over
from thinning import thinned

from nile.execution.live.means.bounded import BoundedSubscription
from nile.execution.live.means.compressed import CompressedSubscription


@pytest.fixture
def path() -> Iterator[Path]:
    """In memory: a killed process loses nothing that it wrote, wherever it wrote it."""
    with in_memory() as folder:
        yield folder / "store"


class Twins:
    """One database that never stops and is given the decisions of those that are killed, and one without bounds."""

    def __init__(self, path: Path, how: str) -> None:
        self.path, self.how, self.decisions = path, how, path.with_suffix(".decisions")
        self.decided: dict[str, float] = {}
        self.read = 0
        self.db = opened(None, how, self._decide)
        self.exact = opened(None, None)
        self.approximate = self.exactly = 0
        """How often a query was found approximate, and exact."""
        self.together = 0

    def _decide(self, what: str, _: Callable[[], Any]) -> Any:
        assert what in self.decided, f"{what}: nobody decided it"
        return self.decided[what] if " room " in what else int(self.decided[what])

    def verify(self, _: int) -> int:
        """Compare all of it; how many pushes the store has taken."""
        if not (self.path / "manifest-1").exists():
            return 0
        with self.decisions.open("rb") as told:
            told.seek(self.read)
            lines = told.read().decode()
            self.read = told.tell()
        for line in lines.split("\n"):
            if line.endswith(" ."):
                what, _, found = line.removesuffix(" .").rpartition(" ")
                self.decided[what] = float(found)
        with opened(self.path, self.how, lambda _, own: own()) as kept:
            done = reached(kept)
            begin = reached(self.db)
            push(self.db, begin, done)
            push(self.exact, begin, done)
            self._same(seen(kept), seen(self.db))
            self._same(seen(kept, EXACT), seen(self.exact, EXACT))
            for names in TOGETHER:
                sharers = [name for name in names if kept.subscription(name).plan is kept.subscription(names[0]).plan]
                self.together += 1
                assert len(sharers) == len(names), f"{names}: only {sharers} share a plan"
            for name in SAMPLED:
                one = kept.subscription(name)
                assert isinstance(one, BoundedSubscription)
                came = taken(done)
                for stream, told in one.accounting.items():
                    told.check()
                    assert told.tuples_in == came[stream] == one.gate.came[stream]
                    assert told.applied == one.gate.took[stream]
                self.approximate += one.approximate
                if not one.approximate:
                    self.exactly += 1
                    if one.choice.emit != "append" or isinstance(one, CompressedSubscription):
                        assert _standing(one) == _standing(self.exact.subscription(name)), name
            plans = {id(each.plan): each.memory for each in map(kept.subscription, child_means.QUERIES)}
            assert sum(plans.values()) <= child_means.BOUND[self.how]
        return done

    @staticmethod
    def _same(one: dict[str, Any], other: dict[str, Any]) -> None:
        assert [name for name in one if one[name] != other[name]] == []


def _standing(one: Any) -> list[Any]:
    """Rows that are told, as they stand."""
    width = len([name for name in one.schema.names if not name.startswith("_")])
    rows = one.plan.pipeline.snapshot().combine_chunks().to_batches()
    return sorted(row for each in rows for row in zip(*(c.to_pylist() for c in each.columns[:width]), strict=True))


def killed(path: Path, how: str, count: int, seed: int) -> Twins:
    """Kill a child over and over; children are forked from one process that has all loaded."""
    twins = Twins(path, how)
    server = ForkServer([sys.executable, ROOT / "tests/harness/child_means.py", path, how, "fork"], ROOT)
    try:
        done = kill_over_and_over([], twins.verify, count, seed, longest=1.0, start=server.start)
    finally:
        server.close()
    assert done.counted >= count
    return twins


@pytest.mark.parametrize("how", thinned(["memory", "cpu"], 2))
def test_what_a_kill_leaves_goes_on_as_without_it(path: Path, how: str) -> None:
    """Copies of the store's files, made in a burst and after it, behind pushes that are in no checkpoint."""
    twins = Twins(path, how)
    at = 0
    for durable, lost in ((58, 4), (70, 9), (118, 4), (180, 3)):
        with path.with_suffix(".decisions").open("a") as told:

            def decide(what: str, own: Callable[[], Any]) -> Any:
                found = own()
                told.write(f"{what} {float(found)!r} .\n")
                return found

            db = opened(twins.path, how, decide)
            assert reached(db) == at
            push(db, at, durable)
            db.checkpoint()
            push(db, durable, durable + lost)
            copy = path.with_name(f"copy{durable}")
            shutil.copytree(twins.path, copy)
            db.close()
        twins.path, at = copy, durable
        assert twins.verify(durable) == durable
    assert twins.approximate > 10
    assert twins.exactly > 10


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("how", ["memory", "cpu"])
def test_plans_that_share_and_samples_outlive_fifty_kills(path: Path, how: str, seed: int) -> None:
    twins = killed(path, how, 50, seed)
    assert twins.approximate > 50
    assert twins.exactly > 50
