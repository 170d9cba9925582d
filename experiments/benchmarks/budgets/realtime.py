"""What a budget costs on the real clock, and what is found within it: process CPU from the call to the last batch."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import click

from nile.answers.join_answer import JoinAnswer
from nile.experiments.benchmarks.budgets.numbers import numbers
from nile.experiments.benchmarks.budgets.quality import PREFERENCES, Compared, compared, sampled
from nile.experiments.benchmarks.budgets.shapes import Retail, Shape, Streams, quick, shapes
from nile.experiments.benchmarks.harness import Measure, Result, benchmark
from nile.preferences.budget import Budget
from nile.summaries.errors import BudgetError

__all__ = ["contestants", "realtime"]

TITLE = "what budgets cost on the real clock beside the exact answer, and what is found beside others in the same time"
FRACTIONS, SECONDS = (0.02, 0.1, 0.3, 0.5), (0.1, 0.5, 2.0)
ASKED = (0.1, 0.3)
"""Fractions whose answers are compared."""
ROUNDS, BRIEFLY = 5, 3
_OVER, _SLACK = 1.1, 0.02
"""Of a fraction of the exact CPU, and seconds beside it."""
_CLOCK, _LATE = 1.05, {"s": 0.02, "deadline": 0.03}
"""Of a budget in seconds or a deadline, and seconds beside it."""
_AMPLE = 2.0
"""Times the exact CPU from which on seconds, or a deadline, are time enough for every pair."""
_NAME = "{:g} {}"
_TIMED = ("{:g} s desc", "{:g} s desc, SQL", "deadline {:g} s desc")


class Found(NamedTuple):
    """Rows handed out, and whether they are the whole answer where a part was asked for."""

    rows: int
    whole: bool = False


class Turn(NamedTuple):
    """A contestant's median: process CPU and wall seconds; rows handed out; whether that was the whole answer."""

    cpu: float
    wall: float
    rows: int
    whole: bool = False


def _briefly() -> Result:
    return _measured(quick(), BRIEFLY)


@benchmark("realtime", TITLE, brief=_briefly)
def realtime() -> Result:
    """Contestants take turns in five rounds after one unmeasured, medians are told; --brief: nine shapes, three."""
    return _measured(shapes(), ROUNDS)


def _measured(several: Iterable[Shape | Retail], rounds: int) -> Result:
    rows: list[dict[str, Any]] = []
    measures: list[Measure] = []
    quality: dict[str, list[Compared]] = {}
    tuples = 0
    for shape in several:
        tuples += 2 * shape.tuples
        with tempfile.TemporaryDirectory() as folder:
            streams = Streams(shape, Path(folder))
            turns = _alternating(contestants(streams), rounds)
            found = _kept(shape, turns)
            against = compared(streams, ASKED, rounds)
        measures += found
        rows += [{"shape": str(shape), "contestant": name} | turn._asdict() for name, turn in turns.items()]
        rows += [{"shape": str(shape)} | one._asdict() for one in against]
        for one in against:
            quality.setdefault(one.judged, []).append(one)
        click.echo("\n".join(_progress(shape, turns, found, against)), err=True)
    with tempfile.TemporaryDirectory() as folder:
        asked = numbers(Path(folder), FRACTIONS, ASKED, rounds)
    measures += asked.measures
    rows += asked.rows
    held = [one for one in asked.measures if one.met is not None]
    click.echo(f"aggregates: {sum(one.met is True for one in held)} of {len(held)} bars kept", err=True)
    measures += [
        Measure(
            "aggregates, error of rows by coin beside theirs, median cell", median(asked.ratios), "times", 1.0,
            low=min(asked.ratios), high=max(asked.ratios),
            about=f"{sum(ratio >= 1.0 for ratio in asked.ratios)} of {len(asked.ratios)} at 1 or more",
        )
    ] if asked.ratios else []  # fmt: skip
    measures += [
        Measure(
            f"{judged}, worst cell", min(ratios), "times", 1.0, low=min(ratios), high=max(ratios),
            about=f"median {median(ratios):.3g}; {sum(ratio >= 1.0 for ratio in ratios)} of {len(ratios)} at 1 or more",
        )
        for judged, cells in quality.items()
        for ratios in [[one.ratio for one in cells if one.ratio is not None]]
        if ratios
    ]  # fmt: skip
    return Result(
        name="realtime", title=TITLE, unit="tuples", work=tuples, timings=(), measures=tuple(measures),
        notes=(
            f"bars: {_OVER:g} times the fraction of the cheaper exact answer's CPU and {1000 * _SLACK:g} ms, unless "
            f"the whole answer came back; {_CLOCK:g} times the seconds and {1000 * _LATE['s']:g} ms; "
            f"deadlines are of the wall; time of {_AMPLE:g} times the exact CPU and more is to find every pair",
            "the exact engine on hashed keys chooses them before it encodes; ranges are the whole join, unexpanded",
            "aggregates: a part that comes with a warning, since reading took more than the fraction, has no bar; rows "
            "by coin: exact SQL over so many that it takes as much CPU; errors are root mean squares over ten seeds",
            "opponents have the CPU time that the answer took: the exact engine on keys by hash, on tuples by coin, "
            "and stopped when its time is out; DuckDB, in its best formulation, on keys by its own hash",
        ),
        rows=tuple(rows),
    )  # fmt: skip


def _kept(shape: Shape | Retail, turns: dict[str, Turn]) -> list[Measure]:
    """Of each contestant what it took, beside what it may."""
    exact = _exact(turns)
    measures = []
    for name, turn in turns.items():
        deadline = name.startswith("deadline")
        came = ", the whole answer came back" if turn.whole else ""
        took, unit = (turn.wall, "s") if deadline else (turn.cpu, "CPU s")
        about = f"{turn.cpu / exact:.2f} of exact, wall {turn.wall:.3g} s, {turn.rows:,} rows{came}"
        measures.append(Measure(f"{shape}: {name}", took, unit, _bar(name, exact, turn), most=True, about=about))
        if _is_ample(name, exact):
            share = turn.rows / max(1, turns["exact, db.sql"].rows)
            measures.append(Measure(f"{shape}: {name}, found", share, "of all", 1.0, about=f"{turn.rows:,} rows"))
    return measures


def _is_ample(name: str, exact: float) -> bool:
    """Whether that contestant's time is enough for the whole answer, which it then has to find."""
    return any(name == form.format(seconds) and seconds >= _AMPLE * exact for form in _TIMED for seconds in SECONDS)


def _exact(turns: dict[str, Turn]) -> float:
    return min(turns["exact, db.sql"].cpu, turns["exact, db.join"].cpu)


def _bar(name: str, exact: float, turn: Turn) -> float | None:
    for fraction in FRACTIONS:
        if name in (_NAME.format(fraction, preference) for preference in PREFERENCES):
            return None if turn.whole else _OVER * fraction * exact + _SLACK
    for seconds in SECONDS:
        if name.startswith(f"{seconds:g} s"):
            return _CLOCK * seconds + _LATE["s"]
        if name.startswith(f"deadline {seconds:g} s"):
            return _CLOCK * seconds + _LATE["deadline"]
    return None


def _progress(
    shape: Shape | Retail, turns: dict[str, Turn], found: list[Measure], against: list[Compared]
) -> Iterable[str]:
    """What a person who waits wants to see of a shape: its exact answers, what broke its bar, and who found more."""
    held = [one for one in found if one.met is not None]
    exact = ", ".join(f"{name} {turn.cpu:.3g}" for name, turn in turns.items() if name.startswith(("exact", "ranges")))
    yield f"{shape}: {exact} CPU s; {sum(one.met is True for one in held)} of {len(held)} bars kept"
    yield from (f"  {one.text().removeprefix(f'{shape}: ')}" for one in held if not one.met)
    yield from (f"  {one.text()}" for one in against)


def contestants(streams: Streams) -> dict[str, Callable[[], Found]]:
    """By name, what asks its question, reads all of the answer and says how many rows it has."""
    db, query = streams.db, streams.query

    def approximate(preference: str, budget: Budget, **how: Any) -> Found:
        answer = query.prefer(preference).using(**how).run(budget)
        if preference == "weighted":
            _ = answer.estimate.value
        rows = _drained(answer)
        return Found(rows, "* exact" in answer.strategy)

    def hashed() -> Found:
        return Found(_drained(JoinAnswer(sampled(query.run().joined, 0.3, 0), query.plan(), key="k")))

    told: dict[str, Callable[[], Found]] = {
        "exact, db.sql": lambda: Found(_drained(db.sql(streams.text()))),
        "exact, db.join": lambda: Found(_drained(query.run())),
        "ranges": lambda: Found(_drained(query.returning("ranges").run())),
        "hashed keys, 0.3": hashed,
    }
    for preference in PREFERENCES:
        for fraction in FRACTIONS:
            run = partial(approximate, preference, Budget(fraction), costs="machine")
            told[_NAME.format(fraction, preference)] = run
    for seconds in SECONDS:
        budget = Budget(seconds=seconds)
        told[f"{seconds:g} s desc"] = partial(approximate, "desc", budget, costs="machine")
        told[f"{seconds:g} s weighted"] = partial(approximate, "weighted", budget, costs="machine")
        told[f"{seconds:g} s desc, SQL"] = partial(_asked, streams, budget)
        told[f"deadline {seconds:g} s desc"] = partial(approximate, "desc", Budget(deadline=seconds), costs="machine")
    return told


def _asked(streams: Streams, budget: Budget) -> Found:
    return Found(_drained(streams.db.sql(streams.text("desc"), budget=budget, costs="machine")))


def _alternating(contestants: dict[str, Callable[[], Found]], rounds: int) -> dict[str, Turn]:
    """The median turn of each, by process CPU; the first round, which loads kernels, is not measured.

    One whose time is refused as too little is left out.
    """
    turns: dict[str, list[Turn]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, run in contestants.items():
            gc.collect()
            wall, cpu = time.perf_counter(), time.process_time()
            try:
                found = run()
            except BudgetError:
                continue
            turn = Turn(time.process_time() - cpu, time.perf_counter() - wall, found.rows, found.whole)
            if number:
                turns[name].append(turn)
    return {
        name: Turn(median(one.cpu for one in all_), median(one.wall for one in all_), all_[-1].rows, all_[-1].whole)
        for name, all_ in turns.items()
        if all_
    }


def _drained(answer: Any) -> int:
    """Rows of an answer that is read batch by batch, none kept."""
    return sum(len(batch) for batch in answer.batches())
