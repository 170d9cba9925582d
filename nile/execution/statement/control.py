"""Introspection: the current state of streams, standing queries and summaries, as relations for SQL.

UPDATE sets what takes effect while it runs: whether a query is active, its budget, what a summary's counters may take.
Source: STREAM (CIDR 2003), section 6: entities with control tables, which is all that a graphical interface needs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from nile.answers.result import Result
from nile.base.durations import format_duration
from nile.base.interrupts import INTERRUPTS
from nile.base.show import row_count
from nile.execution.live.approximate.join import ApproximateSubscription
from nile.execution.live.exact_subscription import ExactSubscription
from nile.execution.live.means.bounded import BoundedSubscription
from nile.execution.live.outputs.outflow import into_of
from nile.execution.live.scheduled import plans_of
from nile.execution.live.shared.common import parts_of, readers_of
from nile.execution.live.shared.sharers import names_of
from nile.execution.options import Options
from nile.execution.statement.replanning import PLANNED, replan
from nile.execution.statement.statements import run_query, said
from nile.operators.inputs.shared_grid import SharedSummary
from nile.sql.reading_statements import read_statement
from nile.sql.statements import Select, Update
from nile.sql.text import query_text
from nile.summaries.errors import ConfigError
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from nile.execution.live.live import Live
    from nile.execution.live.subscription import Subscription

__all__ = ["CONTROL", "control_tables", "update_control"]

_TEXT, _WHOLE, _NUMBER, _YES, _TIME = pa.string, pa.int64, pa.float64, pa.bool_, lambda: pa.timestamp("ns")
_COLUMNS: Mapping[str, Mapping[str, Callable[[], Any]]] = {
    "nile_queries": {
        "name": _TEXT, "query": _TEXT, "into": _TEXT, "streams": _TEXT, "active": _YES, "epoch": _WHOLE,
        "outputs": _WHOLE, "unread": _WHOLE, "reader": _YES, "dropped": _WHOLE, "waiting": _WHOLE, "memory": _WHOLE,
        "budget": _NUMBER, "unit": _TEXT, "asked": _NUMBER, "spent": _NUMBER, "coverage": _NUMBER, "estimate": _NUMBER,
        "low": _NUMBER, "high": _NUMBER, "shares": _TEXT, "shares_part": _TEXT, "shares_nested": _TEXT,
        "shares_tuples": _TEXT, "scheduling": _TEXT, "algorithm": _TEXT, "weight": _NUMBER, "approximate": _YES,
        "queued": _YES,
    },
    "nile_operators": {
        "query": _TEXT, "path": _TEXT, "operator": _TEXT, "tuples": _WHOLE, "positive": _WHOLE, "negative": _WHOLE,
        "held": _WHOLE, "memory": _WHOLE,
    },
    "nile_queues": {"kind": _TEXT, "of": _TEXT, "path": _TEXT, "tuples": _WHOLE, "memory": _WHOLE},
    "nile_scheduler": {
        "name": _TEXT, "scheduler": _TEXT, "quantum": _NUMBER, "latency": _NUMBER, "tuples": _WHOLE, "memory": _WHOLE,
        "peak": _WHOLE, "formed": _WHOLE,
    },
    "nile_synopses": {"kind": _TEXT, "of": _TEXT, "column": _TEXT, "tuples": _WHOLE, "memory": _WHOLE},
    "nile_summaries": {
        "name": _TEXT, "stream": _TEXT, "column": _TEXT, "granularity": _TEXT, "rate": _WHOLE, "depth": _WHOLE,
        "structure": _TEXT, "tuples": _WHOLE, "zones": _WHOLE, "changes": _WHOLE, "error": _NUMBER, "memory": _WHOLE,
        "upkeep": _WHOLE, "served": _WHOLE,
    },
    "nile_sources": {
        "name": _TEXT, "kind": _TEXT, "time": _TEXT, "tuples": _WHOLE, "applied": _WHOLE, "late": _WHOLE,
        "shed": _WHOLE, "rejected": _WHOLE, "waiting": _WHOLE, "kept": _WHOLE, "memory": _WHOLE, "passed": _TIME,
        "silent": _YES, "offset": _TEXT, "reads": _TEXT, "state": _TEXT, "error": _TEXT,
    },
    "nile_sinks": {
        "name": _TEXT, "using": _TEXT, "sends": _TEXT, "state": _TEXT, "error": _TEXT, "sent": _WHOLE, "unread": _WHOLE,
    },
    "nile_constraints": {
        "constraint": _TEXT, "kind": _TEXT, "stream": _TEXT, "within": _WHOLE, "on_violation": _TEXT, "tuples": _WHOLE,
        "measured": _WHOLE, "violations": _WHOLE, "proposal": _TEXT, "queries": _TEXT, "memory": _WHOLE,
    },
    "nile_zones": {
        "summary": _TEXT, "granularity": _WHOLE, "zone": _WHOLE, "first": _TIME, "last": _TIME, "bucket": _WHOLE,
        "tuples": _WHOLE, "most": _WHOLE,
    },
}  # fmt: skip
CONTROL = tuple(_COLUMNS)
"""The names of these relations; one that is registered under such a name comes first."""
_SETTABLE = {
    "nile_queries": ("active", "budget", "weight", *PLANNED),
    "nile_summaries": ("memory",),
    "nile_scheduler": ("scheduler", "quantum", "latency"),
}
_LEAST_COUNTERS = 1_024  # bytes

Rows = Iterator[dict[str, Any]]


def control_tables(live: Live, text: str) -> dict[str, pa.Table]:
    """Those that a statement may mean, as of now: their names stand in its text and are nobody else's.

    Cost: O(what they tell); a nile_zones reads every sketch once.
    """
    lowered = text.lower() if isinstance(text, str) else ""  # what is no text is refused where it is read
    wanted = [name for name in CONTROL if name in lowered and name not in live.names.entries]
    if not wanted:
        return {}
    with live.lock:
        live.commits.check()
        made = {name: list(_ROWS[name](live)) for name in wanted}
    return {
        name: pa.Table.from_pylist(
            rows, schema=pa.schema([(column, kind()) for column, kind in _COLUMNS[name].items()])
        )
        for name, rows in made.items()
    }


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


def _standing(live: Live) -> Iterator[tuple[str | None, str | None, Any, Any]]:
    """(name, text, definition, query) of each that is open, those without a name too."""
    named = {id(standing): (name, definition) for name, (definition, standing) in live.standing.named().items()}
    for standing in live.standing.all():
        if not standing.closed:
            name, definition = named.get(id(standing), (None, None))
            runs = None if definition is None else definition.runs or definition
            yield name, None if runs is None else runs.text, definition, standing


def _queries(live: Live) -> Rows:
    for name, text, definition, one in _standing(live):
        budget, estimate = one.budget, one.estimate
        choice = one.choice if isinstance(one, ExactSubscription) else None
        yield {
            "name": name, "query": text, "streams": ", ".join(one.streams), "active": not one.paused,
            "into": None if definition is None else into_of(definition),
            "epoch": one.epoch, "outputs": one.outputs, "unread": one.unread, "reader": one.has_reader,
            "dropped": one.dropped, "waiting": one.waiting, "memory": one.memory,
            "budget": budget.asked if isinstance(one, ApproximateSubscription) and budget.unit == "fraction" else None,
            "unit": budget.unit, "asked": budget.asked,
            "spent": budget.spent, "coverage": one.coverage, "estimate": estimate.value, "low": estimate.low,
            "high": estimate.high, "shares": _names(live, one.sharers),
            "shares_part": _names(live, one.part_sharers), "shares_nested": _names(live, one.nested_sharers),
            "shares_tuples": _names(live, one.tuple_sharers),
            "weight": one.weight if isinstance(one, BoundedSubscription) else None,
            "approximate": one.approximate if isinstance(one, BoundedSubscription) else None,
            "queued": isinstance(one, ExactSubscription) and one.plan.pipeline.deferred,
            **({} if choice is None else {"scheduling": choice.scheduling, "algorithm": choice.algorithm or None}),
        }  # fmt: skip


def _names(live: Live, standing: Sequence[Subscription]) -> str | None:
    """Those that run something together, as text; None: one runs it alone, or none."""
    return ", ".join(names_of(live, standing)) if len(standing) > 1 else None


def _operators(live: Live) -> Rows:
    for name, _, _, one in _standing(live):
        for each in one.operators:
            yield {
                "query": name, "path": None if each.path is None else ".".join(map(str, each.path)),
                "operator": each.name, "tuples": each.tuples, "positive": each.positive, "negative": each.negative,
                "held": each.held, "memory": each.memory,
            }  # fmt: skip


def _queues(live: Live) -> Rows:
    for name, stream in live.streams().items():
        yield {"kind": "order", "of": name, "tuples": stream.pushed - stream.accounting.tuples_in, "memory": None}
    for query, _, _, one in _standing(live):
        if isinstance(one, ExactSubscription) and one is one.sharers[0] and one.plan.pipeline.deferred:
            of = _names(live, one.sharers) or query
            for each in one.plan.queues():
                yield {
                    "kind": "operator" if each.between else "input", "of": of, "tuples": each.tuples,
                    "path": None if each.path is None else ".".join(map(str, each.path)), "memory": each.memory,
                }  # fmt: skip
        yield {"kind": "paused", "of": query, "tuples": one.waiting, "memory": one.waiting_bytes}
        yield {"kind": "unread", "of": query, "tuples": one.unread, "memory": one.unread_bytes}


def _scheduler(live: Live) -> Rows:
    """peak: the most bytes that waited when work began or ended; formed: how often chains were formed anew."""
    scheduled = live.standing.scheduled
    tuples, memory = live.standing.waiting
    yield {
        "name": "standing queries", "scheduler": scheduled.asked.scheduler, "quantum": scheduled.asked.quantum,
        "latency": scheduled.asked.latency, "tuples": tuples, "memory": memory, "peak": scheduled.peak,
        "formed": scheduled.formed,
    }  # fmt: skip


def _synopses(live: Live) -> Rows:
    for grid in _grids(live):
        if grid.manager is not None:
            memory = grid.manager.memory
            for part in ("sketches", "directory", "tuples"):
                yield {
                    "kind": part, "of": grid.name, "column": grid.column, "tuples": grid.manager.store.tuples,
                    "memory": getattr(memory, part),
                }  # fmt: skip
    for name, stream in live.streams().items():
        if stream.history is not None:
            yield {"kind": "history", "of": name, "tuples": stream.rows, "memory": stream.history.memory}
    for query, _, _, one in _standing(live):  # what several run on is there once
        if one is one.sharers[0]:
            of, own = _names(live, one.sharers) or query, one.plan if isinstance(one, ExactSubscription) else one
            yield {"kind": "state", "of": of, "memory": own.memory}
    for held, plans in parts_of(plans_of(live.standing.all())):
        yield {"kind": "state", "of": ", ".join(names_of(live, readers_of(plans))), "memory": held}


def _summaries(live: Live) -> Rows:
    for grid in _grids(live):
        made, held = live.names.summaries[grid.name], grid.manager
        yield {
            "name": grid.name, "stream": grid.stream, "column": grid.column,
            "granularity": format_duration(made.granularity), "rate": made.rate, "depth": made.depth,
            "structure": grid.spec.structure, "tuples": held and held.store.tuples,
            "zones": held and len(held.zones()), "changes": held and held.changes, "error": held and held.error,
            "memory": held and held.memory.total, "upkeep": grid.upkeep, "served": grid.served,
        }  # fmt: skip


def _sources(live: Live) -> Rows:
    streams, files = live.streams(), live.names.sources()
    for name, entry in live.names.entries.items():
        if name not in streams:
            kind = ("file" if name in files else "object") if entry.is_stream else "relation"
            yield {"name": name, "kind": kind, "time": entry.time, "tuples": live.names.rows(name)}
            continue
        stream, accounts, inflow = streams[name], streams[name].accounting, live.inflows.of(streams[name])
        yield {
            "name": name, "kind": "live", "time": entry.time, "tuples": accounts.tuples_in, "applied": accounts.applied,
            "late": accounts.late, "shed": accounts.shed, "rejected": accounts.rejected, "kept": stream.rows,
            "waiting": stream.pushed - accounts.tuples_in, "passed": stream.passed, "silent": stream.silent,
            "memory": None if stream.history is None else stream.history.memory,
            "offset": json.dumps(live.offsets[name]) if name in live.offsets else None,
            **({} if inflow is None else inflow.told()),
        }  # fmt: skip


def _constraints(live: Live) -> Rows:
    """measured: the least k that would have done so far, null: more than is known; queries: that go by it."""
    for text, each in live.constraints.declared.items():
        users = [one for one in live.standing.all() if not one.closed and text in one.constraints]
        named = {id(one): name for name, (_, one) in live.standing.named().items()}
        names = [named[id(one)] for one in users if id(one) in named]
        nameless = len(users) - len(names)
        yield {
            "constraint": text, "kind": each.statement.kind, "stream": each.statement.stream,
            "within": each.constraint.within, "on_violation": each.statement.violation, "tuples": each.measure.tuples,
            "measured": each.measure.measured, "violations": each.measure.violations, "proposal": each.proposal,
            "queries": ", ".join([*names, *([f"{nameless} without a name"] if nameless else [])]) or None,
            "memory": each.measure.memory,
        }  # fmt: skip


def _zones(live: Live) -> Rows:
    """Of each zone and bucket of values: its tuples, and at most how many of one key (what `desc` goes by)."""
    for grid in _grids(live):
        manager = grid.manager
        if manager is None or manager.spec.structure in ("T1", "T2"):
            continue
        for number, zone in enumerate(manager.zones()):
            sketch = manager.index(zone.granularity).sketch(zone)
            cells = sketch.reshape(sketch.shape[0], manager.spec.buckets, -1)
            tuples, most = cells[0].sum(axis=1), cells.max(axis=2).min(axis=0)
            for bucket in range(manager.spec.buckets):
                yield {
                    "summary": grid.name, "granularity": zone.granularity, "zone": number, "first": zone.first,
                    "last": zone.last, "bucket": bucket, "tuples": int(tuples[bucket]), "most": int(most[bucket]),
                }  # fmt: skip


def _grids(live: Live) -> list[SharedSummary]:
    return [live.names.grid(name) for name in live.names.summaries]


_ROWS: dict[str, Callable[[Live], Rows]] = {
    "nile_queries": _queries,
    "nile_operators": _operators,
    "nile_queues": _queues,
    "nile_scheduler": _scheduler,
    "nile_synopses": _synopses,
    "nile_summaries": _summaries,
    "nile_sources": _sources,
    "nile_sinks": lambda live: (each.told() for each in live.outflows.all() if not each.done),
    "nile_constraints": _constraints,
    "nile_zones": _zones,
}
