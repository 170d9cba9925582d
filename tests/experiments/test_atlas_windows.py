"""The atlas' window joins: streams as asked for, the same outputs from every algorithm, times by rounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from nile.exact.join.clique import ExactClique
from nile.exact.join.window_graph import WindowGraph
from nile.exact.join.wjoin import window_join
from nile.exact.selfscheduling.pulling import PULLED, SelfScheduledPlan
from nile.experiments.atlas.catalogue.shelf import chosen
from nile.experiments.atlas.form import Experiment
from nile.experiments.atlas.kinds import Data
from nile.experiments.atlas.verdicts import Spread
from nile.experiments.atlas.windows.selfscheduling_kind import SELF_SCHEDULED, SelfScheduledOptions, played
from nile.experiments.atlas.windows.window_kind import WINDOW, WINDOW_CLOCK, WindowOptions
from nile.experiments.atlas.windows.window_streams import Played, made, split
from nile.summaries.errors import ConfigError

S = 1_000_000_000
ALGORITHMS = ("chain", "bew-nested", "bew-hash", "few-nested", "few-hash", "ripple", "xjoin")
SMALL = {"streams": 3, "tuples": 1_500, "rate": 50.0, "window": 1.0, "items": 20}


def streams(pattern: str, tuples: int = 30_000) -> Played:
    return made(3, 1, tuples=tuples, rate=1000.0, least=10.0, pattern=pattern, items=7)


def shares(arrivals: Played) -> list[float]:
    return (np.bincount(arrivals.which, minlength=3) / arrivals.ts.shape[0]).tolist()


def test_streams_have_the_rates_asked_for_and_come_in_order() -> None:
    even, spread, turns = streams("even"), streams("spread"), streams("turns")
    for one in (even, spread, turns):
        assert one.ts.shape == one.which.shape == one.code.shape == (30_000,)
        assert (np.diff(one.ts) >= 0).all()
        assert set(one.code.tolist()) == set(range(7))
    assert shares(even) == pytest.approx([1 / 3] * 3, abs=0.02)
    assert shares(spread) == pytest.approx([1000 / 1110, 100 / 1110, 10 / 1110], abs=0.02)
    gaps = np.diff(turns.ts[turns.which == 2]) / S
    assert gaps[:99].mean() == pytest.approx(0.1, rel=0.4)
    assert gaps[100:199].mean() == pytest.approx(0.001, rel=0.4)


@pytest.mark.parametrize("seed", range(3))
def test_every_algorithm_completes_what_sorting_finds(seed: int) -> None:
    options = WindowOptions(**SMALL)  # type: ignore[arg-type]
    arrivals = WINDOW.prepare(options, seed, None)
    parts = [arrivals.which == k for k in range(3)]
    exact = ExactClique(
        tuple(arrivals.ts[part] for part in parts), tuple(arrivals.code[part] for part in parts), S
    ).combinations
    assert exact > 1_000
    told = {}
    for algorithm in ALGORITHMS:
        found = WINDOW.measure(arrivals, options.model_copy(update={"algorithm": algorithm}), seed)
        assert found["outputs"] == exact / 1_500
        told[algorithm] = found
        again = WINDOW.measure(arrivals, options.model_copy(update={"algorithm": algorithm}), seed)
        assert again == found
    assert told["xjoin"]["held"] > told["bew-hash"]["held"] >= told["few-hash"]["held"] == told["chain"]["held"]  # type: ignore[operator]


def test_a_run_for_outputs_ends_with_them_and_has_no_total_without() -> None:
    options = WindowOptions(**SMALL, algorithm="few-hash")  # type: ignore[arg-type]
    arrivals = WINDOW.prepare(options, 0, None)
    some = WINDOW.measure(arrivals, options.model_copy(update={"outputs": 500}), 0)
    assert 0 < some["total"] < WINDOW.measure(arrivals, options, 0)["total"]  # type: ignore[operator]
    assert WINDOW.measure(arrivals, options.model_copy(update={"outputs": 10**9}), 0)["total"] is None


def test_response_times_are_those_of_a_queue() -> None:
    options = WindowOptions(**SMALL, algorithm="bew-hash", speed=2_000.0)  # type: ignore[arg-type]
    arrivals = WINDOW.prepare(options, 0, None)
    join = WINDOW.measure(arrivals, options, 0)
    one = window_join(WindowGraph.uniform(3, S), algorithm="bew-hash")
    free, waited, before = -np.inf, [], 0
    for which, ts, code in zip(arrivals.which.tolist(), arrivals.ts.tolist(), arrivals.code.tolist(), strict=True):
        one.push(which, [ts], [code])
        spent = sum(one.costs.values())
        free = max(free, ts / S) + (spent - before) / 2_000.0
        before = spent
        if ts > arrivals.ts[0] + S:
            waited.append(free - ts / S)
    assert join["response"] == pytest.approx(np.mean(waited), rel=1e-9)
    with pytest.raises(ConfigError, match="needed more than a window of 1000 s"):
        WINDOW.measure(arrivals, options.model_copy(update={"window": 1000.0}), 0)


def test_the_clock_takes_a_time_and_counts_as_the_other_kind_does() -> None:
    options = WindowOptions(**SMALL, algorithm="few-nested")  # type: ignore[arg-type]
    arrivals = WINDOW_CLOCK.prepare(options, 0, None)
    timed, counted = (kind.measure(arrivals, options, 0) for kind in (WINDOW_CLOCK, WINDOW))
    assert timed["comparisons"] == counted["comparisons"]
    assert timed["seconds"] * timed["throughput"] == pytest.approx(1_500)  # type: ignore[operator]


def test_times_are_medians_of_five_rounds_also_in_a_quick_run() -> None:
    timed: Experiment = chosen(["ssdbm-output"])[0]
    assert list(timed.seeds_of(True)) == list(timed.seeds_of(False)) == [0, 1, 2, 3, 4]
    assert Spread.of([9.0, 1.0, 2.0], by_clock=True) == Spread(2.0, 1.0, 9.0, 3)
    assert Spread.of([9.0, 1.0, 2.0], by_clock=False) == Spread(4.0, 1.0, 9.0, 3)


def test_real_streams_are_the_most_frequent_values_of_a_column(tmp_path: Path) -> None:
    table = pa.table(
        {
            "t": pa.array(range(8), pa.timestamp("s")),
            "item": ["x", "y", "x", None, "y", "x", "z", "x"],
            "shop": ["b", "a", "b", "b", None, "a", "c", "b"],
        }
    )
    pq.write_table(table, tmp_path / "sales.parquet")
    data = Data(str(tmp_path / "sales.parquet"), "", "", "", "item", "t", "", "shop")
    two = split(2, data, tuples=5)
    assert two.which.tolist() == [0, 1, 0, 0, 1]
    assert (two.ts // S).tolist() == [0, 1, 2, 3, 5]
    assert two.code[3] < 0
    assert two.code[0] == two.code[2] == two.code[4] != two.code[1]
    with pytest.raises(ConfigError, match="--split shop: needed 4 streams; got 3 values"):
        split(4, data, tuples=5)


def test_one_operator_has_one_name_and_what_cannot_run_is_refused() -> None:
    uniform = {name: WINDOW.operator(WindowOptions(algorithm="few-nested", strategy=name)) for name in ("gca", "lca")}
    assert len(set(uniform.values())) == 1
    options = {"streams": 3, "algorithm": "few-nested", "wide": 2.0}
    wide = {name: WINDOW.operator(WindowOptions(**options, strategy=name)) for name in ("gca", "lca")}  # type: ignore[arg-type]
    assert len(set(wide.values())) == 2
    with pytest.raises(ValidationError, match="needed strategy gca or lca"):
        WindowOptions(algorithm="few-nested", strategy="mbe")
    with pytest.raises(ValidationError, match="needed least at most rate"):
        WindowOptions(pattern="turns", rate=1.0, least=2.0)


def test_over_queues_of_their_own_tuples_wait_for_what_is_behind_and_the_machine_takes_its_time() -> None:
    own = {"streams": 3, "tuples": 1_500, "rate": 50.0, "window": 1.0, "items": 20}
    told = {}
    for algorithm in PULLED:
        for delay in (0.0, 2.0):
            options = SelfScheduledOptions(**own, algorithm=algorithm, delay=delay)  # type: ignore[arg-type]
            told[algorithm, delay] = SELF_SCHEDULED.measure(SELF_SCHEDULED.prepare(options, 0, None), options, 0)
    for name in ("bew-nested", "bew-hash"):
        assert told[name, 0.0]["response"] == told[name, 2.0]["response"] == 0
        assert told[name, 2.0]["kept"] > 1.3 * told[name, 0.0]["kept"]  # type: ignore[operator]
    for name in ("few-nested", "few-hash"):
        assert 0 < told[name, 0.0]["response"] < 0.2 < told[name, 2.0]["response"] < 2.2  # type: ignore[operator]
        assert told[name, 2.0]["comparisons"] == pytest.approx(told[name, 0.0]["comparisons"], rel=0.01)
    slow = SelfScheduledOptions(**own, speed=2_000.0)  # type: ignore[arg-type]
    run = played(SELF_SCHEDULED.prepare(slow, 0, None), SelfScheduledPlan(3, S, "bew-hash"), 2_000.0)
    busy = played(SELF_SCHEDULED.prepare(slow, 0, None), SelfScheduledPlan(3, S, "bew-hash"), None)
    assert run.outputs == busy.outputs
    assert np.nanmax(run.done) >= sum(run.costs.values()) / 2_000.0 - 0.1, "an operation takes half a millisecond"
    with pytest.raises(ConfigError, match="needed more than two windows of 1000 s"):
        SELF_SCHEDULED.measure(SELF_SCHEDULED.prepare(slow, 0, None), slow.model_copy(update={"window": 1000.0}), 0)
