"""Binding unnest: the lists of one SELECT as they are found, and unnest(list) in FROM."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nile.expressions.binding import typed_column
from nile.expressions.lists.values import element_kind
from nile.expressions.places import Fault, NotYetFault
from nile.expressions.tree import Call, Case, Column, Compare, Constant, Node, columns_of, conjuncts
from nile.sql import plan as ops
from nile.sql.binding.expression_binder import ExpressionBinder
from nile.sql.binding.inputs import Inputs, column_of, moved_names
from nile.sql.binding.scope import Scope, ScopeSource
from nile.sql.parsed import Joined, Table, Unnested
from nile.sql.plan import Field, Item, Plan
from nile.sql.reading.inline_relations import listed_rows
from nile.summaries.heavy import pa

__all__ = ["Unnests", "unnested"]


class Unnests:
    """The lists that one SELECT unnests; equal ones share a column."""

    def __init__(self) -> None:
        self._known: dict[Node, Item] = {}

    def __call__(self, node: Node, kind: pa.DataType) -> Column:
        """The column of the elements of a list."""
        if node not in self._known:
            self._known[node] = Item(Field(f"_unnest{len(self._known)}", kind), node)
        field = self._known[node].field
        return typed_column(field.name, field.type)

    def over(self, plan: Plan) -> Plan:
        """The rows, each once for each element."""
        return ops.Unnest(plan, tuple(self._known.values())) if self._known else plan


def unnested(
    joined: Joined,
    known: list[ScopeSource],
    inputs: Inputs,
    merged: dict[str, Field],
    one_row: Callable[[Table], Plan],
    derived: Callable[[str, Plan, Sequence[str], int], ScopeSource],
) -> None:
    """unnest(list) among the sources of a FROM: of one or several of those before it, or of none.

    one_row: the plan of a relation that is written down; derived: a query as a source.  Raises Fault.
    """
    source = joined.source
    assert isinstance(source, Unnested)
    scope = Scope(tuple(known), dict(merged))
    node, kind = ExpressionBinder(scope, source.value, None).listed()
    outer = joined.kind == "left"
    if joined.kind not in ("comma", "inner", "left") or joined.using or joined.natural:
        raise NotYetFault("needed a comma, CROSS JOIN or LEFT JOIN ... ON TRUE before unnest(); got another join",
                          source.start)  # fmt: skip
    if outer and (joined.on is None or joined.on.node != Constant(True, "boolean")):
        raise NotYetFault("needed LEFT JOIN unnest(...) ON TRUE; got another condition; write it in the query around",
                          source.start)  # fmt: skip
    if outer:  # a row without elements stays, beside a null
        nothing = Call("list_value", (Constant(None, element_kind(node.kind)),), node.kind)
        some = Compare(">", Call("len", (node,), "integer"), Constant(0, "integer"))
        node = Case(((some, node),), nothing, node.kind)
    names = set(columns_of(node))
    if names:
        plan = inputs.taken(names, source.start)
    else:
        rows = listed_rows([[Constant(0, "integer")]], ("_row",), source.start)
        plan = one_row(Table(str(rows), "_row", source.start, listed=rows))
    items = [Item(Field(f"c{at}", field.type), column_of(field)) for at, field in enumerate(plan.fields)]
    items = items if names else []
    element = Item(Field("_unnest0", kind), node)
    called = source.columns[0] if source.columns else source.alias
    if len(source.columns) > 1:
        raise Fault(f"needed one name for the elements in {source.alias}; got {len(source.columns)}", source.start)
    last = Item(Field(f"c{len(items)}", kind), typed_column("_unnest0", kind))
    made = derived("_list", ops.Project(ops.Unnest(plan, (element,)), (*items, last)), (), source.start)
    moved = {
        field.name: made.columns[item.name] for field, item in zip(plan.fields if names else (), items, strict=True)
    }
    moved_names(moved, known, merged)
    share = 1.0
    known.append(ScopeSource(source.alias, made.plan, {called: made.columns[last.name]}, "", (), share))
    inputs.put(made.plan, moved, comma=joined.kind == "comma" and not names)
    if joined.on is not None and not outer:
        condition = ExpressionBinder(Scope(tuple(known), merged), joined.on, None).condition("ON")
        inputs.conditions += conjuncts(condition)
