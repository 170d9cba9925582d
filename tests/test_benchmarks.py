"""The benchmark harness under a clock that does as it is told, and the contestants' answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.benchmarks import harness, names, ranges, run, sketch
from experiments.benchmarks.accuracy_streams import workload
from experiments.benchmarks.harness import Bar, Contestant, Result, race
from summaries.countsketch import CountSketch
from summaries.errors import ConfigError
from summaries.hashing import KeyHasher


class Clock:
    """Nanoseconds that pass only when a contestant says so."""

    def __init__(self) -> None:
        self.now = 0
        self.turns: list[str] = []

    def __call__(self) -> int:
        return self.now

    def contestant(self, name: str, *milliseconds: int) -> Contestant:
        costs = iter(milliseconds)
        last = milliseconds[-1]

        def work() -> None:
            self.turns.append(name)
            self.now += next(costs, last) * 1_000_000

        return Contestant(name, work)


def raced(clock: Clock, *contestants: Contestant, bars: tuple[Bar, ...] = (), **options: Any) -> Result:
    return race("r", "a race", contestants, work=1_000, unit="tuples", bars=bars, clock=clock, **options)


def test_ratios_are_medians_of_rounds_with_their_spread_and_bar() -> None:
    clock = Clock()
    # Warm-up, a look, then five rounds of one pass each.
    ours = clock.contestant("ours", 500, 50, 50, 50, 50, 100, 50)
    theirs = clock.contestant("theirs", 500, 200, 200, 150, 250, 200, 200)
    other = clock.contestant("other", 500, 100)
    result = raced(clock, ours, theirs, other, bars=(Bar("theirs", 4.0),), rounds=5)
    first, second = result.ratios
    assert (first.opponent, first.ratio, first.worst, first.best) == ("theirs", 4.0, 2.0, 5.0)
    assert (first.bar, first.met) == (4.0, True)
    assert (second.ratio, second.bar, second.met) == (2.0, None, None)
    assert result.timings[0].seconds == (0.05, 0.05, 0.05, 0.1, 0.05)
    assert result.timings[0].per_unit_ns == pytest.approx(50_000)
    assert result.timings[0].per_second == pytest.approx(20_000)
    assert "4.00 times theirs (2.00 to 5.00); bar 4: reached" in result.text()
    assert json.loads(json.dumps(result.as_dict()))["ratios"][0]["ratio"] == 4.0


def test_a_bar_that_is_not_reached_is_said_plainly() -> None:
    clock = Clock()
    result = raced(clock, clock.contestant("a", 50), clock.contestant("b", 100), bars=(Bar("b", 6.0),))
    assert result.ratios[0].met is False
    assert "2.00 times b (2.00 to 2.00); bar 6: NOT reached" in result.text()


def test_contestants_take_turns_and_every_one_begins_once() -> None:
    clock = Clock()
    raced(clock, *(clock.contestant(name, 60) for name in "abc"), rounds=6)
    assert "".join(clock.turns) == "aabbcc" + "abc" + "bca" + "cab" + "abc" + "bca" + "cab"


def test_fast_contestants_repeat_their_work_until_a_turn_is_long_enough() -> None:
    clock = Clock()
    result = raced(clock, clock.contestant("fast", 5), clock.contestant("slow", 100), rounds=5)
    assert [timing.passes for timing in result.timings] == [10, 1]
    assert result.ratios[0].ratio == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("contestants", "options"),
    [
        ("a", {}),
        ("aa", {}),
        ("ab", {"rounds": 4}),
        ("ab", {"bars": (Bar("c", 2.0),)}),
        ("ab", {"bars": (Bar("a", 2.0),)}),
    ],
    ids=["alone", "same name", "four rounds", "bar for nobody", "bar against oneself"],
)
def test_a_race_that_compares_nothing_is_refused(contestants: str, options: dict[str, Any]) -> None:
    clock = Clock()
    with pytest.raises(ConfigError, match="bench r: needed"):
        raced(clock, *(clock.contestant(name, 50) for name in contestants), **options)
    assert clock.turns == []


def test_benchmarks_run_by_name_in_the_order_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "_REGISTRY", {})
    begun: list[str] = []

    def body(name: str) -> Callable[[], Result]:
        return lambda: Result(name, name, "tuples", 1, (), ())

    for name in ("beta", "alpha"):
        harness.benchmark(name, f"the {name}")(body(name))
    assert names() == {"alpha": "the alpha", "beta": "the beta"}
    assert [result.name for result in run(["beta", "alpha"])] == ["beta", "alpha"]
    assert [result.name for result in run(["all"], lambda name, _: begun.append(name))] == begun
    assert begun == ["alpha", "beta"]
    with pytest.raises(ConfigError, match="needed one of alpha, beta or all; got 'gamma'"):
        run(["alpha", "gamma"], lambda name, _: begun.append(name))
    assert begun == ["alpha", "beta"]


def test_the_sketch_benchmark_is_listed() -> None:
    assert "count-sketch batch update" in names()["sketch"]


def test_every_contestant_of_the_sketch_benchmark_counts_the_same() -> None:
    keys = sketch.zipf_keys(1 << 16, 1_000, 1.1, seed=2)
    hashes = KeyHasher().words(keys)
    assert np.array_equal(hashes, sketch.mix_with_numpy(keys, KeyHasher().seed))
    ours = CountSketch(5, 1024)
    ours.summarize(hashes)
    difference = ours.counters[:, ::2] - ours.counters[:, 1::2]
    cells = np.zeros((5, 2048), np.int64)
    signed = np.zeros((5, 1024))
    sketch.bincount_cells(cells, ours.row_multipliers, hashes)
    sketch.bincount_signs(signed, ours.row_multipliers, hashes)
    assert np.array_equal(ours.counters, cells)
    assert np.array_equal(difference, signed)


def test_zipf_keys_are_the_same_for_a_seed_and_fall_in_frequency() -> None:
    keys = sketch.zipf_keys(50_000, 100, 1.1, seed=2)
    assert np.array_equal(keys, sketch.zipf_keys(50_000, 100, 1.1, seed=2))
    counts = np.bincount(keys, minlength=100)
    assert counts[0] > counts[9] > counts[99] > 0


def test_the_c_loop_finds_the_records_that_the_kernel_finds(tmp_path: Path) -> None:
    work = workload(0.067, seed=3, tuples=3_000)
    plan = ranges.plan_of("ranges", work.window)
    data = work.joined.input(plan.costs, ranges=True)
    ours = ranges.OnlineJoin(plan, data)
    records = ours.records()
    assert int((records[:, 2] - records[:, 1]).sum()) == work.joined.pairs
    assert np.array_equal(ours.records(), records)  # from nothing each time
    library = ranges.compiled(tmp_path)
    if library is None:
        pytest.skip("no C compiler here")
    theirs = ranges.CJoin(library, data, work.window)
    assert np.array_equal(theirs.records(), records)
    theirs.close()
