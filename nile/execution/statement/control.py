"""Introspection: the current state of streams, standing queries and summaries, as relations for SQL.

Source: STREAM (CIDR 2003), section 6: entities with control tables, which is all that a graphical interface needs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nile.base.durations import format_duration
from nile.execution.live.approximate.join import ApproximateSubscription
from nile.execution.live.exact_subscription import ExactSubscription
from nile.execution.live.means.bounded import BoundedSubscription
from nile.execution.live.outputs.outflow import into_of
from nile.execution.live.scheduled import plans_of
from nile.execution.live.shared.common import parts_of, readers_of
from nile.execution.live.shared.sharers import names_of
from nile.operators.inputs.shared_grid import SharedSummary
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from nile.execution.live.live import Live
    from nile.execution.live.subscription import Subscription

__all__ = ["CONTROL", "control_tables"]

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
