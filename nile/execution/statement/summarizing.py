"""SUMMARIZE: what a table holds, column by column."""

from __future__ import annotations

from typing import Any

from nile.base.nearest import nearest
from nile.base.plain import can_be_equal, can_be_ordered
from nile.expressions.binding import kind_of
from nile.summaries.heavy import pa, pc

__all__ = ["summarized"]

_SHARES = (0.25, 0.5, 0.75)


def summarized(table: pa.Table) -> pa.Table:
    """A row for each column, named and computed as DuckDB's, but that `unique` is exact.

    min, max: as text, null for values without an order; avg, std, q25, q50, q75: of numbers; count: of rows;
    null_percentage: of 100.  O(rows log rows) a column.
    """
    rows = [_column(name, table.column(at), table.num_rows) for at, name in enumerate(table.schema.names)]
    return pa.Table.from_pylist(rows, schema=_schema())


def _schema() -> pa.Schema:
    texts = ("column_name", "column_type", "min", "max")
    numbers = ("avg", "std", "q25", "q50", "q75")
    return pa.schema(
        [
            *((name, pa.string()) for name in texts),
            ("unique", pa.int64()),
            *((name, pa.float64()) for name in numbers),
            ("count", pa.int64()),
            ("null_percentage", pa.float64()),
        ]
    )


def _column(name: str, values: Any, rows: int) -> dict[str, Any]:
    values = values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    kind = values.type
    if pa.types.is_dictionary(kind):
        values = values.dictionary_decode()
    told: dict[str, Any] = {"column_name": name, "column_type": str(kind), "count": rows}
    told["null_percentage"] = 100.0 * values.null_count / rows if rows else None
    known = values.drop_null()
    if can_be_equal(kind):
        told["unique"] = len(pc.unique(known))
    if can_be_ordered(kind) and len(known):
        order = pc.sort_indices(known)
        told["min"], told["max"] = (str(known[order[at].as_py()].as_py()) for at in (0, len(known) - 1))
    if kind_of(kind) in ("integer", "number") and len(known):
        numbers = nearest(known, pa.float64(), safe=False)
        told["avg"] = pc.mean(numbers).as_py()
        told["std"] = pc.stddev(numbers, ddof=1).as_py() if len(known) > 1 else None
        quarters = pc.quantile(numbers, q=list(_SHARES)).to_pylist()
        told |= dict(zip(("q25", "q50", "q75"), quarters, strict=True))
    return told
