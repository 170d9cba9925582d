"""Binding window functions: over the rows of a FROM, or over its groups if there are any."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nile.aggregates.catalogue import CATALOGUE
from nile.aggregates.results import result_type
from nile.base.plain import can_be_ordered
from nile.expressions.binding import typed_column
from nile.expressions.folding import fold
from nile.expressions.places import Fault
from nile.expressions.tree import Column, Constant, Node
from nile.sql import plan as ops
from nile.sql.binding.expression_binder import ExpressionBinder, in_order, told_apart, type_of
from nile.sql.over import FUNCTIONS, SESSIONS
from nile.sql.parsed import OverCall
from nile.sql.plan import Field, OverItem, SortKey
from nile.summaries.heavy import pa

__all__ = ["Overs"]

_WHOLE = ("row_number", "rank", "dense_rank", "ntile")
_SHARES = ("percent_rank", "cume_dist")


class Overs:
    """The window functions of one SELECT, as they are found; equal ones share a column.

    above: what a value over the sources is over the groups; fields: the columns of the rows that functions are over.
    """

    def __init__(self, above: Callable[[Node, int], Node], fields: Callable[[], Mapping[str, Field]]) -> None:
        self._above = above
        self._fields = fields
        self._known: dict[tuple[object, ...], OverItem] = {}

    @property
    def items(self) -> tuple[OverItem, ...]:
        """What was found."""
        return tuple(self._known.values())

    def __call__(self, call: OverCall, binder: ExpressionBinder) -> Column:
        """The column of a call.  Raises Fault."""

        def bound(node: Node) -> Node:
            made = fold(binder.bind(node))
            if made.kind == "null" and not isinstance(made, Column):
                made = Constant(None, "integer")  # a NULL of no type is one of whole numbers, as in SELECT
            return self._above(made, call.start)

        arguments = tuple(bound(each) for each in call.arguments)
        by = tuple(bound(each) for each in call.by)
        order = tuple(SortKey(bound(key), down, last) for key, down, last in call.order)
        for each in by:
            told_apart(each, self._type_of(each), "PARTITION BY", call.start)
        for key in order:
            in_order(key.node, self._type_of(key.node), call.start)
        self._check_frame(call, order)
        kind, arguments = self._typed(call, arguments, order)
        same = (call.function, arguments, by, order, call.frame, call.fraction, call.without_nulls)
        if same not in self._known:
            field = Field(f"_over{len(self._known)}", kind)
            self._known[same] = OverItem(field, *same)
        field = self._known[same].field
        return typed_column(field.name, field.type)

    def over(self, plan: ops.Plan) -> ops.Plan:
        """The rows with the functions' values behind them."""
        return ops.Over(plan, self.items) if self._known else plan

    def _type_of(self, node: Node) -> pa.DataType:
        return type_of(node, self._fields())

    def _typed(
        self, call: OverCall, arguments: tuple[Node, ...], order: tuple[SortKey, ...]
    ) -> tuple[pa.DataType, tuple[Node, ...]]:
        """The type of the value, and the arguments as they are taken."""
        if call.function in _WHOLE:
            return pa.int64(), arguments
        if call.function in _SHARES:
            return pa.float64(), arguments
        if call.function in SESSIONS:
            key = call.order[0] if len(call.order) == 1 and call.frame is None else None
            if key is None or key[1] or order[0].node.kind not in ("timestamp", "date", "integer", "number"):
                raise Fault(
                    f"needed ORDER BY one time, rising, and no frame for {call.function}(); got something else; write "
                    "OVER (PARTITION BY ... ORDER BY ts)",
                    call.start,
                )
            return pa.timestamp("us"), arguments
        if call.function in FUNCTIONS:
            first, rest = arguments[0], arguments[1:]
            if first.kind == "null" and not isinstance(first, Column):
                first = Constant(None, "integer")
            fits = (first.kind, "null", "integer" if first.kind == "number" else "")
            if len(rest) == 2 and rest[1].kind not in fits:
                raise Fault(
                    f"needed a default of the value's kind in {call.function}(); got {rest[1].kind} beside "
                    f"{first.kind}; CAST one of them",
                    call.start,
                )
            return self._type_of(first), (first, *rest)
        kind = CATALOGUE[call.function]
        if not arguments or kind.gives == "whole":
            return pa.int64(), arguments
        argument = arguments[0]
        if argument.kind == "null" and not isinstance(argument, Column):
            argument = Constant(None, "number" if kind.takes == "number" else "integer")
        number = argument.kind in ("integer", "number")
        if (kind.takes == "number" and not number) or (
            kind.takes == "ordered" and not can_be_ordered(self._type_of(argument))
        ):
            raise Fault(f"needed {kind.takes} values for {kind.sql}() OVER; got {argument.kind}; CAST them", call.start)
        return result_type(kind, self._type_of(argument)), (argument,)

    def _check_frame(self, call: OverCall, order: tuple[SortKey, ...]) -> None:
        frame = call.frame
        if frame is None or frame.unit != "range" or all(each in (None, 0) for each in (frame.begin, frame.end)):
            return
        needed = ("timestamp", "date") if frame.interval else ("integer", "number")
        if order[0].node.kind not in needed:
            raise Fault(
                f"needed {'an interval' if not frame.interval else 'a number'} in RANGE BETWEEN, as ORDER BY is of a "
                f"{order[0].node.kind}; got another offset",
                call.start,
            )
