"""t_ins, t_hit and equation 1: what a tuple and a hit cost, on the cost clock and on this machine, and what follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nile.report.pages.markup import Markup, element
from nile.report.pages.tables import table
from nile.report.runs import Record, Runs, Series, number
from nile.report.wording import asked, duration, listing, percent, plain_number, tick, times

__all__ = ["measures", "readings", "with_measured"]

CLOSE = 0.05
"""A prediction within this much of what was observed is called right."""

MEANING = (
    "t_ins is what it costs to take one tuple in: its tuple list, its summary, the ends of zones and COLLAPSE. t_hit "
    "is what it costs to find one output: looking up or estimating, queueing, probing in vain, emitting. With a budget "
    "of τ an arrival, equation 1 of the paper predicts (τ − t_ins) / t_hit outputs an input. It supposes that every "
    "tuple is taken in and that all of the budget finds work. Freshness is the mean age |ts1 − ts2| of the outputs: "
    "lower is fresher."
)

BY_CLOCK = (
    "Times are CPU times of one thread on the machine below, and differ from run to run. Kernels insert and probe in "
    "one loop, so t_ins was measured apart: each stream fed alone, with nothing to find. t_hit is what the whole run "
    "took beyond t_ins for each tuple taken in, over its outputs; refusing tuples counts as hits."
)

WALL = {"t_ins_ns": "wall_t_ins", "t_hit_ns": "wall_t_hit", "interarrival_ns": "wall_interarrival",
        "outputs_per_input_predicted": "wall_predicted"}  # fmt: skip


def with_measured(records: Sequence[Record], measured: Any) -> list[Record]:
    """The records, each with the times that `measured` (a list of tables with the number of a run) has for it."""
    extended = [dict(record) for record in records]
    for entry in measured if isinstance(measured, list | tuple) else ():
        place = entry.get("run") if isinstance(entry, Mapping) else None
        if isinstance(place, int) and 0 <= place < len(extended):
            extended[place] |= {name: entry.get(key) for key, name in WALL.items()}
    return list(extended)


def measures(runs: Runs) -> Markup:
    """The section of one setting: what it means, what was found, a table for each preference."""
    if not any(number(record, "insert_cost") is not None for record in runs.records):
        return Markup()
    timed = any(number(record, "wall_t_ins") is not None for record in runs.records)
    tables = [
        element(
            "details",
            element("summary", f"Numbers under {preference}"),
            element("div", _table(runs, preference, timed), class_="scroll"),
            open=place == 0,
        )
        for place, preference in enumerate(runs.preferences)
    ]
    return element(
        "section",
        element("h2", "What a tuple costs, and what a hit"),
        element("p", MEANING, class_="prose"),
        element("ul", *(element("li", line) for line in readings(runs)), class_="prose"),
        element("p", BY_CLOCK, class_="note") if timed else Markup(),
        *tables,
    )


def readings(runs: Runs) -> list[str]:
    """A few sentences a series, under the first preference: what was charged, what it took, how right equation 1 is."""
    preference = runs.preferences[0]
    return [told for series in runs.series if (told := " ".join(_readings(runs, series, preference)))]


def _readings(runs: Runs, series: Series, preference: str) -> Iterator[str]:
    inserting, hitting = (_values(runs, series, preference, key) for key in ("insert_cost", "hit_cost"))
    if not inserting or not hitting:
        return
    costs = runs.of("costs")
    yield (
        f"{series.name} under {preference}: a tuple is charged {_range(inserting)} units of the cost table {costs} and "
        f"a hit {_range(hitting)}."
    )
    clock_in, clock_hit = (_values(runs, series, preference, key) for key in ("wall_t_ins", "wall_t_hit"))
    if clock_in and clock_hit:
        table, here = hitting[-1] / inserting[-1], clock_hit[-1] / clock_in[-1]
        yield (
            f"On this machine a tuple took {_range(clock_in, nanoseconds=True)} and a hit "
            f"{_range(clock_hit, nanoseconds=True)}; so at the largest budget a hit is worth {times(here)} insertions "
            f"by the clock, and {times(table)} by the table."
        )
    yield from _equation(runs, series, preference)


def _equation(runs: Runs, series: Series, preference: str) -> Iterator[str]:
    """How far equation 1 is from what was observed, and why, where it is furthest."""
    compared = []
    for budget in runs.budgets:
        predicted, observed, unspent, not_taken = (
            _value(runs, series, preference, key, budget)
            for key in ("outputs_per_input_predicted", "outputs_per_input", "unspent", "not_taken")
        )
        if predicted is not None and observed:
            compared.append((predicted / observed - 1.0, budget, predicted, observed, unspent or 0.0, not_taken or 0.0))
    if not compared:
        return
    bound = [one for one in compared if one[4] <= CLOSE]
    if bound:
        off, budget, predicted, observed, _, not_taken = max(bound, key=lambda one: abs(one[0]))
        where = "wherever the budget was used up" if len(bound) < len(compared) else "at every budget"
        if abs(off) <= CLOSE:
            yield f"Equation 1 is right within {percent(max(abs(off), 0.001))} {where}."
        else:
            why = f", since {percent(not_taken)} of the tuples were not taken in and cost no t_ins" if off < 0 else ""
            yield (
                f"Where the budget was used up, equation 1 is furthest off at {asked(budget)}: "
                f"{plain_number(predicted)} outputs an input predicted, {plain_number(observed)} observed "
                f"({_signed(off)}){why}."
            )
    idle = [one for one in compared if one[4] > CLOSE]
    if idle:
        off, budget, _, _, unspent, _ = max(idle, key=lambda one: one[0])
        yield (
            f"{listing([asked(one[1]) for one in idle])} left part of the grant unused: {percent(unspent)} at "
            f"{asked(budget)}, where equation 1, which counts it as hits, predicts {_signed(off)}."
        )


def _table(runs: Runs, preference: str, timed: bool) -> Markup:
    clock = ("t_ins, time", "t_hit, time") if timed else ()
    by_clock = any(number(record, "wall_predicted") is not None for record in runs.records)
    heads = (
        "method", "budget", "t_ins, units", "t_hit, units", *clock, "τ, units", "outputs an input, predicted",
        "observed", "off", *(("predicted by the clock",) if by_clock else ()), "mean age",
    )  # fmt: skip
    rows = []
    for series in runs.series:
        for place, budget in enumerate(runs.budgets):

            def of(key: str, series: Series = series, budget: float = budget) -> float | None:
                return _value(runs, series, preference, key, budget)

            predicted, observed = of("outputs_per_input_predicted"), of("outputs_per_input")
            off = predicted / observed - 1.0 if predicted is not None and observed else None
            cells = [_number(of("insert_cost")), _number(of("hit_cost"))]
            if timed:
                cells += [_time(of("wall_t_ins")), _time(of("wall_t_hit"))]
            cells += [_number(of("interarrival_cost")), _number(predicted), _number(observed)]
            cells += ["–" if off is None else _signed(off)]
            if by_clock:
                cells += [_number(of("wall_predicted"))]
            age = of("mean_age_s")
            cells += ["–" if age is None else duration(age)]
            name = series.name if place == 0 else ""
            rows.append((name, tick(budget), *cells))
    return table(heads, rows)


def _value(runs: Runs, series: Series, preference: str, key: str, budget: float) -> float | None:
    point = runs.curve(series, preference, key).at(budget)
    return None if point is None else point.mean


def _values(runs: Runs, series: Series, preference: str, key: str) -> list[float]:
    """A figure at every budget that has it, the least budget first."""
    return [point.mean for point in runs.curve(series, preference, key).points if point.mean > 0]


def _range(values: Sequence[float], *, nanoseconds: bool = False) -> str:
    one, other = ((_time if nanoseconds else _number)(value) for value in (min(values), max(values)))
    return one if one == other else f"{one} to {other}"


def _number(value: float | None) -> str:
    return "–" if value is None else plain_number(value)


def _time(nanoseconds: float | None) -> str:
    return "–" if nanoseconds is None else duration(nanoseconds / 1e9)


def _signed(share: float) -> str:
    """`12 % too much`, `6.7 times too much`, `3 % too little`, `±0`."""
    if abs(share) < 5e-4:
        return "±0"
    if share > 1:
        return f"{times(1 + share)} times too much"
    return f"{percent(abs(share))} too {'much' if share > 0 else 'little'}"
