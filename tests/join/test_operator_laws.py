"""What every operator over ordered input promises, once for all of them (the catalogue is `operator_laws`)."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from operator_laws import CASES, SAMPLED, Case, having
from thinning import rounds
from workload_live import as_tuples_come
from workload_standing import SharedFigures

from nile.operators.common.plan import JoinPlan
from nile.operators.drive.live import LiveRun
from nile.operators.join import join
from nile.operators.multiway import multiway
from nile.preferences import state
from nile.preferences.budget import Budget


def over(law: str) -> Any:
    return pytest.mark.parametrize("case", having(law), ids=lambda case: case.name)


def test_every_method_and_guide_is_in_the_catalogue() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert {case.plan.method for case in CASES} >= {"nile", "paper", "scan", "hash-drop", "hash-backlog"}
    assert {case.plan.guide for case in CASES if isinstance(case.plan, JoinPlan)} == {"countsketch", "directory"}


@over("cut")
def test_no_cut_of_the_output_or_of_the_input_shows(case: Case) -> None:
    whole, operator = case.told()
    assert len(whole) > 0
    for rows in (1, 13):
        again, other = case.told(batch_rows=rows)
        assert again == whole
        assert other.figures == operator.figures


@over("steps")
def test_wherever_an_advance_stops_the_outputs_are_the_same(case: Case) -> None:
    whole, operator = case.told()
    stepped, other = case.advanced(iter(range(0, operator.arrivals, 89)))
    assert stepped == whole
    assert other.figures == operator.figures


@over("room")
def test_a_full_output_interrupts_without_a_trace(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, operator = case.told()
    monkeypatch.setattr(join, "_ROOM", 3)
    monkeypatch.setattr(multiway, "_ROOM", 3)
    again, other = case.told()
    assert again == whole
    assert other.figures == operator.figures


@over("honest")
def test_outputs_are_true_told_once_and_paid_for(case: Case) -> None:
    found, operator = case.found()
    figures = operator.figures
    assert len(found) == len(set(found)) > 0
    assert set(found) <= case.truth()
    assert figures.spent <= figures.granted * (1 + 1e-9)
    assert figures.arrivals == case.arrivals


@over("parts")
def test_what_is_spent_is_told_apart_and_coverage_is_a_share(case: Case) -> None:
    figures = case.told()[1].figures
    assert 0.0 < figures.spent_insert + figures.spent_hit <= figures.spent * (1 + 1e-9)
    assert 0.0 <= figures.coverage <= 1.0


@over("accounts")
def test_every_tuple_is_null_admitted_or_shed(case: Case) -> None:
    told = case.told()[1].figures
    for figures in told.each if isinstance(told, SharedFigures) else [told]:
        assert figures.arrivals == figures.nulls + figures.admitted + sum(figures.shed)


@over("whole")
def test_the_whole_budget_buys_the_whole_answer(case: Case) -> None:
    found, operator = case.found(replace(case.plan, budget=Budget(10.0)))
    truth = case.truth()
    if case.plan.preference == "asc":
        assert set(found) <= truth
    else:
        assert set(found) == truth
        assert "parts" in case.lacks or operator.figures.coverage == 1.0
    assert len(found) == len(set(found))


@over("zero")
def test_reading_every_estimate_as_zero_changes_which_regions_are_visited(case: Case) -> None:
    seeing, blind = (case.found(replace(case.plan, blind=blind))[0] for blind in (False, True))
    assert set(seeing) != set(blind)


@over("interrupt")
def test_a_run_that_is_interrupted_between_batches_goes_on_to_the_same_answer(case: Case) -> None:
    """What asked for the next batch raises, the operator does not know: asked again, it goes on where it was."""
    whole, _ = case.told()
    operator = case.make(case.plan, 7)
    running = operator.run()
    rows: list[tuple[Any, ...]] = []

    def reader(batches: int) -> None:
        for part in itertools.islice(running, batches):
            rows.extend(case.rows(part))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reader(min(5, len(whole) // 14))
    for part in running:
        rows += case.rows(part)
    assert rows == whole


STANDARD_ERRORS = 3.0
LOST_AT_THE_END = 0.02
"""Share of the outputs that wait for credit when the input ends: they are lost without a weight."""
STILL_WAITING = 0.07
"""Share of the tuples that may wait, on average, when the input ends: the outputs they would complete are lost."""


@pytest.mark.parametrize("fraction", [0.5, pytest.param(0.2, marks=pytest.mark.slow), 0.05])
@pytest.mark.parametrize("seeds", rounds(150))
@pytest.mark.parametrize("case", SAMPLED, ids=lambda case: case.name)
def test_weights_add_up_to_the_exact_answer_on_average(case: Case, fraction: float, seeds: int) -> None:
    """Horvitz-Thompson: over many seeds the mean of the total weight is the number of outputs."""
    if fraction == 0.05 and case.plan.output == "ranges":
        pytest.skip("a tenth of the tuples waits when so short an input ends")
    totals, waiting = [], []
    for seed in range(seeds):
        operator = case.make(replace(case.plan, seed=seed, budget=Budget(fraction)), 10_000)
        totals.append(sum(case.weights(operator, part) for part in list(operator.run())))
        figures, whole = operator.figures, operator.state.whole
        waiting.append(int(whole[state.ARRIVED] - whole[state.APPLIED]))
        assert figures.expired == figures.evicted == 0
        assert figures.spent <= figures.granted * (1 + 1e-9)
    error = np.std(totals, ddof=1) / math.sqrt(len(totals))
    truth = len(case.truth())
    assert abs(np.mean(totals) - truth) <= STANDARD_ERRORS * error + LOST_AT_THE_END * truth
    assert np.mean(waiting) <= STILL_WAITING * case.arrivals


@over("live")
def test_pushed_as_it_comes_it_finds_the_same_and_goes_on_from_what_it_held(case: Case) -> None:
    """Cut at instants into uneven pushes; half way everything is taken out as plain values and put into another one."""
    assert case.live is not None
    with as_tuples_come():
        wanted, operator = case.found()
    live, streams = case.live()
    run = LiveRun(live)
    times = np.unique(np.concatenate([one.ts for one in streams]))
    ends = [int(times[at]) for at in np.cumsum([0, 1, 1, 7, 300, 2, 150, 40]) if at < times.shape[0]] + [int(times[-1])]
    places = [0] * len(streams)
    found: list[tuple[int, ...]] = []
    for turn, end in enumerate(ends):
        upto = [int(np.searchsorted(one.ts, end, side="right")) for one in streams]
        parts = [slice(first, last) for first, last in zip(places, upto, strict=True)]
        ts = tuple(one.ts[part] for one, part in zip(streams, parts, strict=True))
        places = upto
        for outputs in run.take(ts, tuple(one.key[part] for one, part in zip(streams, parts, strict=True))):
            found += zip(*(each.tolist() for each in outputs.ordinals), strict=True)
        if turn == len(ends) // 2:
            held = zip(streams, live.needed_from(), places, strict=True)
            state, keys = run.capture(), tuple(one.key[first:last] for one, first, last in held)
            live, _ = case.live()
            run = LiveRun(live)
            run.restore(state, keys)
    assert found == wanted
    assert live.figures == operator.figures
