"""Scalar subqueries with exactly one row: their value if they had one row, else null.

Of no row SQL has null too; of several DuckDB has an error, which a query that stands cannot have: data alone would end
it, at an instant that nobody chose.
"""

from __future__ import annotations

from nile.expressions.tree import Case, Column, Compare, Constant
from nile.sql.parsed import Aggregate, Block, Derived, Expression, Joined, Reference, SelectItem, Star, Written

__all__ = ["single"]


def single(query: Written, start: int) -> Block:
    """The query, if it has aggregates and no groups; else the one value that it has."""
    plain = isinstance(query, Block) and query.group is None and query.having is None
    if isinstance(query, Block) and plain and len(query.items) == 1:
        value = query.items[0].value
        if isinstance(value, Star):
            return query
        if value.aggregates:
            return query
        if not (value.overs or value.nested or query.distinct or query.qualify or query.limit or query.offset):
            return _of(query, value, start)
    if isinstance(query, Block) and len(query.items) != 1:
        return query  # the binder says what is wrong with it
    source = Derived(query, "_value", start, ("value",))
    value = Expression(Column("#0"), (Reference("_value", "value", start),), (), start, "value")
    return _of(Block((), (Joined(source),), start), value, start)


def _of(query: Block, value: Expression, start: int) -> Block:
    """CASE WHEN count(*) = 1 THEN max(value) END, without an order, which says nothing of it."""
    count = Aggregate("count", None, False, None, start)
    most = Aggregate("max", value.node, False, None, start)
    one = Compare("=", Column("@0"), Constant(1, "integer"))
    made = Expression(
        Case(((one, Column("@1")),), Constant(None, "null")),
        value.references,
        (count, most),
        start,
        value.text,
        places=value.places,
    )
    return Block(
        (SelectItem(made, "value"),), query.sources, query.start, where=query.where, order=(), limit=None, offset=0
    )
