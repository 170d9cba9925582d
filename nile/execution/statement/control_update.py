"""UPDATE of control tables, which takes effect while all runs: whether a query is active, its budget, weight or plan,
the scheduler, what a summary's counters may take.  Source: STREAM (CIDR 2003), section 6.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from nile.answers.result import Result
from nile.base.interrupts import INTERRUPTS
from nile.base.show import row_count
from nile.execution.live.approximate.join import ApproximateSubscription
from nile.execution.live.means.bounded import BoundedSubscription
from nile.execution.options import Options
from nile.execution.statement.control import control_tables
from nile.execution.statement.replanning import PLANNED, replan
from nile.execution.statement.statements import run_query, said
from nile.sql.reading_statements import read_statement
from nile.sql.statements import Select, Update
from nile.sql.text import query_text
from nile.summaries.errors import ConfigError

if TYPE_CHECKING:
    from nile.execution.live.live import Live

__all__ = ["update_control"]

_SETTABLE = {
    "nile_queries": ("active", "budget", "weight", *PLANNED),
    "nile_summaries": ("memory",),
    "nile_scheduler": ("scheduler", "quantum", "latency"),
}
_LEAST_COUNTERS = 1_024  # bytes


def update_control(live: Live, made: Update) -> Result:
    """UPDATE of a control table: each row that it means, one after another.  Raises ConfigError, SqlError."""
    if not isinstance(made, Update):
        raise ConfigError(
            f"{made.name}: needed SELECT or UPDATE; got another; its rows are what runs: CREATE or DROP that"
        )
    name, known = made.name.lower(), _SETTABLE.get(made.name.lower(), ())
    wrong = [column for column, _ in made.values if column not in known]
    if wrong:
        settable = "; ".join(f"{', '.join(columns)} of {table}" for table, columns in _SETTABLE.items())
        raise ConfigError(
            f"UPDATE {made.name}: needed what can be set while it runs ({settable}), as it is now; got "
            f"{wrong[0]}; change what it is made of instead"
        )
    where = "" if made.where is None else f" WHERE {made.where}"
    asked = ", ".join(f"({value}) AS new_{column}" for column, value in made.values)
    names = live.names.with_sources((), control_tables(live, name))
    read = read_statement(f"SELECT name, {asked} FROM {name}{where}", names)
    assert isinstance(read, Select)
    with live.lock:
        rows = run_query(names, read.query, Options.of({})).to_arrow().to_pylist()
        # What cannot be is refused before anything is set, and signals wait until all of it is.
        steps = []
        for row in rows:
            new = {column: row[f"new_{column}"] for column, _ in made.values}
            if planned := {column: new.pop(column) for column in PLANNED if column in new}:
                steps.append(_set_plan(live, row["name"], planned))
            if name == "nile_scheduler":
                steps.append(partial(live.schedule, live.standing.scheduled.change(**new)))
                continue
            steps += [_SET[name, column](live, row["name"], value) for column, value in new.items()]
        with INTERRUPTS:
            for step in steps:
                step()
    return said(f"{row_count(len(rows))} of '{name}' updated")


def _set_active(live: Live, name: str | None, value: Any) -> Callable[[], object]:
    if name is None or type(value) is not bool:
        raise ConfigError(
            f"UPDATE nile_queries: needed a query with a name and true or false; got {name!r} and {value!r}; subscribe "
            "with name= to pause and resume it"
        )
    standing = live.standing.get(name)
    return standing.resume if value else standing.pause


def _set_plan(live: Live, name: str | None, given: Mapping[str, Any]) -> Callable[[], object]:
    wrong = [column for column, value in given.items() if not (value is None or isinstance(value, str))]
    if name is None or wrong:
        raise ConfigError(
            f"UPDATE nile_queries: needed a query with a name, and text or NULL for {', '.join(given)}; got "
            f"{name!r} and {', '.join(wrong) or 'text'}"
        )
    return partial(replan, live, name, given)


def _set_budget(live: Live, name: str | None, value: Any) -> Callable[[], object]:
    if name is None or type(value) not in (int, float):
        raise ConfigError(
            f"UPDATE nile_queries, budget: needed a query with a name, and a fraction of its exact work; got {name!r} "
            f"and {value!r}; say budget = 0.1"
        )
    standing = live.standing.get(name)
    if not isinstance(standing, ApproximateSubscription):
        raise ConfigError(
            f"UPDATE nile_queries, budget: needed a join WITH PREFERENCE within a fraction; got {name!r}, which is "
            "none; ask it anew"
        )

    def grant() -> None:
        with live.commits:
            definition, _ = live.standing.named()[name]
            runs = replace(definition, text=query_text(standing.set_budget(float(value))), runs=None)
            live.standing.redefine(name, replace(definition, runs=None if runs == definition else runs))
        live.commits.complain()

    standing.check_budget(float(value))
    return grant


def _set_memory(live: Live, name: str, value: Any) -> Callable[[], object]:
    if type(value) is not int or value < _LEAST_COUNTERS:
        raise ConfigError(
            f"UPDATE nile_summaries, memory: needed at least {_LEAST_COUNTERS} bytes, a whole number; got {value!r}; "
            "that is what its counters may take"
        )
    made = live.names.summaries[name]
    options = tuple((each, given) for each, given in made.options if each != "columns")
    sized = ("columns", "capacity", "k")
    parameters = tuple((each, given) for each, given in made.parameters if each not in sized)
    fresh = replace(made, memory=value, error=None, options=options, parameters=parameters)
    _ = fresh.grid  # what does not fit is refused before anything changes
    return lambda: live.change(lambda: live.names.keep_summary(fresh))


def _set_weight(live: Live, name: str | None, value: Any) -> Callable[[], object]:
    standing = None if name is None else live.standing.get(name)
    if not isinstance(standing, BoundedSubscription) or type(value) not in (int, float) or not 0.0 < value < math.inf:
        raise ConfigError(
            "UPDATE nile_queries, weight: needed a number above 0 and a query with a name that may be sampled, in a "
            f"database with bounds; got {value!r} for {name!r}; connect with memory= or cpu="
        )
    return partial(setattr, standing, "weight", value)


_SET = {
    ("nile_queries", "active"): _set_active,
    ("nile_queries", "budget"): _set_budget,
    ("nile_queries", "weight"): _set_weight,
    ("nile_summaries", "memory"): _set_memory,
}
