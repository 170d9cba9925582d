"""SHOW and DESCRIBE: the content of the catalog, as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nile.base.durations import format_duration
from nile.execution.exact.run import output_schema
from nile.execution.statement.engine import Engine, known_name
from nile.sql.catalog import Entry
from nile.sql.expression_text import identifier
from nile.sql.reading_statements import read_statement
from nile.sql.statements import CreateSummary, Describe, Select, Show
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from nile.operators.inputs.shared_grid import SharedSummary
    from nile.pyramid.grid.manager import SummaryManager

__all__ = ["described", "shown"]


def shown(engine: Engine, asked: Show) -> pa.Table:
    """The rows of SHOW."""
    if asked.what == "summaries":
        held = list(engine.summaries.values())
        return pa.table(
            {
                "name": pa.array([one.name for one in held], pa.string()),
                "stream": pa.array([one.stream for one in held], pa.string()),
                "column": pa.array([one.column for one in held], pa.string()),
                "granularity": pa.array([format_duration(one.granularity) for one in held], pa.string()),
                "rate": pa.array([one.rate for one in held], pa.int64()),
                "depth": pa.array([one.depth for one in held], pa.int64()),
                **_kept([engine.grid(one.name) for one in held]),
            }
        )
    if asked.what == "views":
        views = list(engine.views.values())
        return pa.table(
            {
                "name": pa.array([view.name for view in views], pa.string()),
                "columns": pa.array([", ".join(view.columns) or None for view in views], pa.string()),
                "query": pa.array([view.text for view in views], pa.string()),
            }
        )
    wanted = {"streams": (True,), "relations": (False,), "tables": (True, False)}[asked.what]
    entries = [entry for entry in engine.entries.values() if entry.is_stream in wanted]
    return pa.table(
        {
            "name": pa.array([entry.name for entry in entries], pa.string()),
            "kind": pa.array(["stream" if entry.is_stream else "relation" for entry in entries], pa.string()),
            "time": pa.array([entry.time for entry in entries], pa.string()),
            "columns": pa.array([", ".join(entry.schema.names) for entry in entries], pa.string()),
        }
    )


def _kept(grids: Sequence[SharedSummary]) -> dict[str, Any]:
    """What SHOW SUMMARIES tells of the grids; nulls of one that has not been built yet."""
    managers = [grid.manager for grid in grids]
    return {
        "tuples": pa.array([m and m.store.tuples for m in managers], pa.int64()),
        "zones": pa.array([m and _zones(m) for m in managers], pa.string()),
        "bytes": pa.array([m and m.memory.total for m in managers], pa.int64()),
        "error": pa.array([m and m.error for m in managers], pa.float64()),
        "sketch": pa.array([m and m.shape for m in managers], pa.string()),
        "upkeep": pa.array([grid.upkeep for grid in grids], pa.int64()),
        "served": pa.array([grid.served for grid in grids], pa.int64()),
    }


def _kind(made: CreateSummary) -> dict[str, Any]:
    """What USING says of the summaries in zones, where it is not the grid's own kind."""
    return {} if made.kind == "countsketch" else {"using": made.kind, **dict(made.parameters)}


def _zones(manager: SummaryManager) -> str:
    """How many zones each granularity has, the finest first."""
    counts = Counter(zone.granularity for zone in manager.zones())
    return ", ".join(f"G{g} {counts[g]}" for g in range(1, manager.spec.depth + 1))


def described(engine: Engine, asked: Describe) -> pa.Table:
    """The rows of DESCRIBE.  Raises UnknownStream, and SqlError for a view that cannot be read any more."""
    if asked.query is None and asked.name in engine.summaries and asked.name not in engine.entries:
        made = engine.summaries[asked.name]
        options = {
            "stream": made.stream, "column": made.column, "granularity": format_duration(made.granularity),
            "rate": made.rate, "depth": made.depth, **_kind(made), **dict(made.options),
            **({} if made.error is None else {"error": made.error}),
            **({} if made.memory is None else {"memory": made.memory}),
        }  # fmt: skip
        return pa.table({"option": list(options), "value": [str(value) for value in options.values()]})
    if asked.query is not None:
        entry = Entry("", output_schema(asked.query, "append"), None)
    elif asked.name in engine.views:
        read = read_statement(f"SELECT * FROM {identifier(asked.name)}", engine)
        assert isinstance(read, Select)
        entry = Entry(asked.name, output_schema(read.query, "append"), None)
    else:
        entry = engine.entries[known_name(engine, asked.name)]
    return pa.table(
        {
            "column": pa.array(entry.schema.names, pa.string()),
            "type": pa.array([str(field.type) for field in entry.schema], pa.string()),
            "time": pa.array([field.name == entry.time for field in entry.schema], pa.bool_()),
        }
    )
