"""The benchmark harness under a clock that does as it is told, and the contestants' answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from nile.experiments.benchmarks import harness, names, reading, run, sketch, surface
from nile.experiments.benchmarks.budgets.quality import compared
from nile.experiments.benchmarks.budgets.realtime import contestants
from nile.experiments.benchmarks.budgets.shapes import Retail, Shape, Streams, quick, shapes
from nile.experiments.benchmarks.exact import ranges
from nile.experiments.benchmarks.harness import Bar, Contestant, Measure, Result, race
from nile.experiments.benchmarks.runtime import Many, beside_alone
from nile.experiments.benchmarks.streams import workload
from nile.experiments.cli import main
from nile.summaries.countsketch import CountSketch
from nile.summaries.errors import ConfigError
from nile.summaries.hashing import KeyHasher


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
    first, second = result.measures
    assert (first.name, first.value, first.low, first.high) == ("ours, against theirs", 4.0, 2.0, 5.0)
    assert (first.bar, first.met) == (4.0, True)
    assert (second.value, second.bar, second.met) == (2.0, None, None)
    assert result.timings[0].seconds == (0.05, 0.05, 0.05, 0.1, 0.05)
    assert result.timings[0].per_unit_ns == pytest.approx(50_000)
    assert result.timings[0].per_second == pytest.approx(20_000)
    assert "ours, against theirs: 4 times as fast (2 to 5); bar at least 4: reached" in result.text()
    written = json.loads(json.dumps(result.as_dict()))["measures"][0]
    assert (written["value"], written["met"]) == (4.0, True)


def test_a_bar_that_is_not_reached_is_said_plainly() -> None:
    clock = Clock()
    result = raced(clock, clock.contestant("a", 50), clock.contestant("b", 100), bars=(Bar("b", 6.0),))
    assert result.measures[0].met is False
    assert "a, against b: 2 times as fast (2 to 2); bar at least 6: NOT reached" in result.text()


def test_contestants_take_turns_in_every_order_and_every_one_begins_once() -> None:
    clock = Clock()
    raced(clock, *(clock.contestant(name, 60) for name in "abc"), rounds=6)
    assert "".join(clock.turns) == "aabbcc" + "abc" + "bca" + "cab" + "cba" + "acb" + "bac"


def test_fast_contestants_repeat_their_work_until_a_turn_is_long_enough() -> None:
    clock = Clock()
    result = raced(clock, clock.contestant("fast", 5), clock.contestant("slow", 100), rounds=5)
    assert [timing.passes for timing in result.timings] == [10, 1]
    assert result.measures[0].value == pytest.approx(20.0)


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


def test_all_runs_the_brief_form_of_what_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "_REGISTRY", {})
    harness.benchmark("long", "long", brief=lambda: Result("long", "", "tuples", 1, (), ()))(
        lambda: Result("long", "", "tuples", 9, (), ())
    )
    assert [(result.work, result.brief) for result in run(["all", "long"])] == [(1, True), (9, False)]
    assert "brief" in run(["all"])[0].text()


def report(path: Path, *results: Result) -> Path:
    path.write_text(json.dumps({"results": [result.as_dict() for result in results]}))
    return path


def of(name: str, *measures: Measure, work: int = 1) -> Result:
    return Result(name, name, "tuples", work, (), measures)


def test_two_runs_are_compared_figure_by_figure_and_a_lost_bar_fails(tmp_path: Path) -> None:
    noisy = {"bar": 2.0, "low": 1.0, "high": 9.0}
    old = report(
        tmp_path / "old.json",
        of("a", Measure("held", 3.0, "times", 2.0, low=2.5, high=3.5), Measure("noisy", 3.0, **noisy)),
        of("b", Measure("most", 1.0, "s", 1.5, most=True), Measure("told", 5.0), Measure("gone", 1.0)),
        of("c", Measure("sized", 1.0), work=1),
    )
    new = report(
        tmp_path / "new.json",
        of("a", Measure("held", 1.5, "times", 2.0, low=1.4, high=1.6), Measure("noisy", 2.0, **noisy)),
        of("b", Measure("most", 0.5, "s", 1.5, most=True), Measure("told", 7.0), Measure("new", 1.0)),
        of("c", Measure("sized", 9.0), work=2),
    )
    result = CliRunner().invoke(main, ["bench", "compare", str(old), str(new)])
    assert result.exit_code == 1
    assert result.output.splitlines() == [
        "worse   a, held: 3 times (2.5 to 3.5) -> 1.5 times (1.4 to 1.6); the bar is LOST",
        "better  b, most: 1 s -> 0.5 s",
        "changed b, told: 5 -> 7",
        "gone    b, gone: 1",
        "new     b, new: 1",
        "other   c, not compared: 1 tuples and 2 tuples",
        "7 figures: 1 the same within their spread, 6 not; 1 bars lost.",
    ]
    again = CliRunner().invoke(main, ["bench", "compare", str(old), str(old)])
    assert (again.exit_code, again.output) == (0, "6 figures: 6 the same within their spread, 0 not; 0 bars lost.\n")


def test_a_bar_that_is_lost_within_the_spread_is_shown_and_one_that_moved_is_told(tmp_path: Path) -> None:
    old = report(tmp_path / "old.json", of("a", Measure("near", 1.0, "", 1.0, low=0.9, high=1.1), Measure("up", 3.0)))
    new = report(
        tmp_path / "new.json", of("a", Measure("near", 0.99, "", 1.0, low=0.9, high=1.1), Measure("up", 3.0, "", 4.0))
    )
    result = CliRunner().invoke(main, ["bench", "compare", str(old), str(new)])
    assert result.exit_code == 1
    assert result.output.splitlines() == [
        "same    a, near: 1 (0.9 to 1.1) -> 0.99 (0.9 to 1.1); the bar is LOST",
        "2 figures: 2 the same within their spread, 0 not; 1 bars lost.",
    ]
    lower = report(tmp_path / "lower.json", of("a", Measure("near", 0.5, "", 0.4), Measure("up", 3.0)))
    assert (
        "worse   a, near: 1 (0.9 to 1.1) -> 0.5; bar 1 -> 0.4"
        in CliRunner().invoke(main, ["bench", "compare", str(old), str(lower)]).output.splitlines()
    )


def test_a_report_becomes_a_table_of_what_has_a_bar(tmp_path: Path) -> None:
    path = report(tmp_path / "b.json", of("a", Measure("x | y", 3.0, "s", 2.0, most=True), Measure("told", 5.0)))
    result = CliRunner().invoke(main, ["bench", "table", str(path)])
    assert result.output.splitlines()[2:] == ["| a | x \\| y | 3 s | at most 2, **not reached** |"]


def test_a_table_has_the_benchmarks_that_are_named(tmp_path: Path) -> None:
    runs = [of(name, Measure("x", 3.0, bar=2.0)) for name in ("a", "b-one", "b-two", "c")]
    path = report(tmp_path / "b.json", *runs)
    result = CliRunner().invoke(main, ["bench", "table", str(path), "c", "b"])
    assert [line[:7].rstrip() for line in result.output.splitlines()[2:]] == ["| c | x", "| b-one", "| b-two"]
    wrong = CliRunner().invoke(main, ["bench", "table", str(path), "bb"])
    assert "needed one of a, b-one, b-two, c; got 'bb'" in wrong.output + str(wrong.exception)


@pytest.mark.slow
def test_the_surface_is_measured_against_its_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surface, "ROUNDS", 1)
    monkeypatch.setattr(surface, "STATEMENTS", 1)
    monkeypatch.setattr(surface, "COLD_ROUNDS", 1)
    first = surface._first_answer
    monkeypatch.setattr(surface, "_first_answer", lambda text: first(text, warm=True) if "desc" in text else 1.0)
    (result,) = run(["surface"])
    bars = [(each.unit, each.bar) for each in result.measures]
    assert bars == [("s", 0.3), ("ms", 5.0), ("s", 5.0), ("s", 10.0), ("s", 10.0), ("s", 10.0)]
    assert all(each.value > 0 for each in result.measures)


def test_reading_is_measured_against_its_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"ROUNDS": 1, "PIECES": 2, "PAUSE_S": 0.05, "TUPLES": 50, "LONGER": 50, "LONG": 500, "SHORT": 500}
    for name, value in small.items():
        monkeypatch.setattr(reading, name, value)
    monkeypatch.setattr(reading, "_FEEDS", {"selection": reading._FEEDS["selection"]})
    asked, stubs = reading._asked, {reading._FIRST: 1.0, reading._HOLD: [2_500, 1.0]}
    runs = ("count", reading._FEEDS["selection"])  # a process takes seconds: two of them
    monkeypatch.setattr(
        reading, "_asked", lambda text, *given: asked(text, *given) if given[0] in runs else stubs[text]
    )
    (result,) = run(["reading"])
    assert [(each.unit, each.bar) for each in result.measures] == [
        ("s", 0.4),
        *[("MB", bar) for bar in (600, 600, 300, 300)],
        ("s", 2.0),
    ]
    assert all(each.value > 0 for each in result.measures)
    assert [each.name.split(":")[1].split()[0] for each in result.measures[-3:-1]] == ["2,500", "2,500"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["compare", "no.json", "no.json"], "no such file"),
        (["compare", "bad.json", "bad.json"], "needed what `nile bench ... --out DIR` writes"),
        (["table", "no.json"], "no such file"),
    ],
)
def test_reports_that_are_none_are_refused(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text('{"results": [{"name": "a"}]}')
    result = CliRunner().invoke(main, ["bench", *words])
    assert isinstance(result.exception, ConfigError) or result.exit_code == 2
    assert said in result.output + str(result.exception)


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
    theirs = ranges.CJoin(library, ranges.columns_of(data), data.keys, work.window, data.order)
    assert np.array_equal(theirs.records(), records)
    theirs.close()


def test_budgets_on_the_real_clock_are_measured_beside_one_exact_answer(tmp_path: Path) -> None:
    streams = Streams(Shape(4, 0.5, 1, "text", "Parquet", 2_000), tmp_path)
    found = {name: ask() for name, ask in contestants(streams).items()}
    exact = found["exact, db.sql"].rows
    assert exact == found["exact, db.join"].rows > 0
    assert all(0 < one.rows <= exact for one in found.values())


def test_answers_within_budgets_are_judged_beside_others_in_the_same_time(tmp_path: Path) -> None:
    streams = Streams(Shape(4, 0.5, 1, "int", "Arrow", 6_000), tmp_path)
    told = compared(streams, (0.3,), 1)
    assert [one.judged for one in told][:2] == ["desc, recall", "asc, recall of outliers"]
    # So small a join is returned whole: nobody finds more.
    assert all((one.own, one.ratio) == (1.0, pytest.approx(1.0 / one.best)) for one in told[:2])
    assert all(one.own < 1e-6 for one in told[2:])
    assert len({str(shape) for shape in quick()}) == 9
    every = [shape for shape in shapes(100_000) if isinstance(shape, Shape)]
    assert len(set(every)) == len(every)
    assert {shape.kind for shape in every} == {"int", "text", "float"}


def test_queries_that_run_together_are_held_against_each_alone() -> None:
    texts = [f"SELECT item, count(*) AS n FROM a WHERE price > {k} GROUP BY item WINDOW '1 ms'" for k in (10, 90)]
    together, *apart = (
        Many(each, streams="a", rows=300, emit="changes").found(2) for each in (texts, texts[:1], texts[1:])
    )
    beside_alone("two", together, *apart)
    with pytest.raises(AssertionError, match="two: query 0 told other rows than alone"):
        beside_alone("two", together, *reversed(apart))
    with pytest.raises(AssertionError, match="two: query 1 told nothing"):
        beside_alone("two", [together[0], together[1][:0]], *apart)


def test_a_shape_has_the_matches_that_it_is_called_by(tmp_path: Path) -> None:
    for shape in (Shape(16, 0.5, 60, "int", "Arrow", 20_000), Shape(1, 1.23, 60, "text", "Arrow", 20_000)):
        answer = Streams(shape, tmp_path).query.run()
        assert answer.estimate.value / shape.tuples == pytest.approx(shape.matches, rel=0.5)


def test_retail_comes_as_often_as_asked_and_joins_within_each_time_alone(tmp_path: Path) -> None:
    rng, n = np.random.default_rng(1), 800
    ts = pa.array(np.sort(rng.integers(0, 40_000_000_000, n))).cast(pa.timestamp("us"))
    store = pa.array(rng.integers(0, 10, n).astype(np.int8), mask=rng.random(n) < 0.05)
    items = [f"item {k}" for k in rng.integers(0, 40, n)]
    file = tmp_path / "retail.parquet"
    pq.write_table(pa.table({"ts": ts, "vstore": store, "item_id": items}), file)
    once, thrice = (Retail(file, 3_600, times) for times in (1, 3))
    assert thrice.tuples == 3 * once.tuples == 1_200
    pairs = [Streams(shape, tmp_path).query.run().estimate.value for shape in (once, thrice)]
    assert pairs[1] == 3 * pairs[0] > 0
    assert len({str(once), str(thrice), str(once._replace(source="Parquet"))}) == 3
