"""The expressions of a SELECT: the columns that they refer to, and the aggregates in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from nile.aggregates.catalogue import CATALOGUE
from nile.expressions.allowed import COMPARISONS
from nile.expressions.places import Fault, NotYetFault, Parameter
from nile.expressions.taking import Taker, start_of
from nile.expressions.tokens import MAX_DEPTH
from nile.expressions.tree import Arithmetic, Case, Column, Comparison, Constant, Node, Not
from nile.sql.expression_text import aggregate_text, expression_text
from nile.sql.parsed import GROUPING, Aggregate, Expression, Nested, OverCall, Reference, Written
from nile.sql.reading.collecting import COLLECTING, read_collected
from nile.sql.reading.over_reading import call_text, read_over, without_over

__all__ = ["ExpressionReader", "plain_only"]

_AGGREGATES = {
    "Count": "count",
    "Sum": "sum",
    "Avg": "avg",
    "Min": "min",
    "Max": "max",
    "Median": "median",
    "Variance": "var_samp",
    "VariancePop": "var_pop",
    "Stddev": "stddev_samp",
    "StddevSamp": "stddev_samp",
    "StddevPop": "stddev_pop",
    "PercentileCont": "quantile_cont",
    "PercentileDisc": "quantile_disc",
    "Quantile": "quantile_disc",
    **COLLECTING,
}
"""What sqlglot calls them, and the catalogue."""
_LATER = {
    "Any": "ANY other than behind =, <>, <, <=, > or >=",
    "All": "ALL other than behind =, <>, <, <=, > or >=",
    "Tuple": "a row of several values other than behind =, or before IN and a list",
    "Mode": "mode; count, and write QUALIFY rank() OVER (ORDER BY count(*) DESC) = 1",
}
_OPPOSITE: Mapping[Comparison, Comparison] = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_LATER_IN_SELECT = {
    "with_": "WITH name AS (...) inside of a query in an expression",
    "windows": "WINDOW name AS (...)",
    "pivots": "PIVOT; write sum(x) FILTER (WHERE y = 1) for each column",
    "sample": "a sample",
    "laterals": "LATERAL",
    "method": "a natural or ASOF join",
}


_QUERIES = ("Select", "Subquery", "Union", "Intersect", "Except")


class ExpressionReader:
    """Reads expressions of one statement.

    values: parameters by offset; used: the offsets of those it has met; query: what reads a query in an expression.
    """

    def __init__(self, values: Mapping[int, Parameter], query: Callable[[Any, int], Written]) -> None:
        self._values = values
        self._query = query
        self._depth = 0
        self.used: set[int] = set()

    def read(self, node: Any) -> Expression:
        """One expression, with the columns and aggregates in it."""
        references: list[Reference] = []
        aggregates: list[Aggregate] = []
        queries: list[Nested] = []
        overs: list[OverCall] = []
        unnests: list[tuple[Node, int]] = []
        inside = False

        def column(qualifier: str | None, name: str, start: int | None) -> Column:
            references.append(Reference(qualifier, name, start or 0))
            return Column(f"#{len(references) - 1}")

        def aggregate(node: Any, depth: int) -> Node:
            nonlocal inside
            start = start_of(node) or 0
            if inside:
                raise Fault("needed an aggregate of columns; got one of another aggregate", start)
            inside = True
            if type(node).__name__ in COLLECTING:
                aggregates.append(read_collected(node, taker, depth))
                inside = False
                return Column(f"@{len(aggregates) - 1}")
            argument, distinct, fraction = self._argument(node, taker, depth)
            inside = False
            aggregates.append(Aggregate(_AGGREGATES[type(node).__name__], argument, distinct, fraction, start))
            return Column(f"@{len(aggregates) - 1}")

        def filtered(node: Any, depth: int) -> Node:
            """An aggregate of the rows for which FILTER (WHERE ...) is true: of a CASE that is null for the others."""
            plain_only(node, "this", "expression")
            if type(node.this).__name__ not in _AGGREGATES:
                raise Fault("needed an aggregate before FILTER; got something else", start_of(node))
            nonlocal inside
            if inside:
                raise Fault("needed an aggregate of columns; got one of another aggregate", start_of(node))
            inside = True
            condition = taker.take(node.expression.this, depth)
            inside = False
            column = taker.take(node.this, depth)
            whole = aggregates[-1]
            kind = CATALOGUE[whole.function]
            if kind.is_collected and not kind.skips:
                aggregates[-1] = replace(whole, where=condition)
                return column
            value = Constant(1, "integer") if whole.argument is None else whole.argument
            aggregates[-1] = replace(whole, argument=Case(((condition, value),), Constant(None, "null")))
            return column

        def over(node: Any, depth: int) -> Node:
            if inside:
                raise Fault("needed an aggregate of columns; got one of a window function", start_of(node))
            overs.append(read_over(node, taker, depth, lambda call, at: self._call(call, taker, at)))
            return Column(f"%{len(overs) - 1}")

        def unnest(node: Any, depth: int) -> Node:
            start = start_of(node) or 0
            if inside:
                raise Fault("needed an aggregate of columns; got one of unnest(); unnest in FROM", start)
            plain_only(node, "this")
            unnests.append((taker.take(node.this, depth), start))
            return Column(f"^{len(unnests) - 1}")

        def nested(
            kind: Literal["exists", "in", "scalar"],
            below: Any,
            node: Any,
            item: Node | None = None,
            operator: Comparison = "=",
        ) -> Node:
            self._depth += 1
            query = self._query(below, self._depth)
            self._depth -= 1
            queries.append(Nested(kind, query, start_of(node) or 0, item, operator))
            return Column(f"?{len(queries) - 1}")

        def scalar(node: Any, _: int) -> Node:
            return nested("scalar", node, node)

        def exists(node: Any, _: int) -> Node:
            plain_only(node, "this")
            return nested("exists", node.this, node)

        def listed(node: Any, depth: int) -> Node:
            """IN: of a query, else of a list."""
            if node.args.get("query") is None:
                return taker.listed(node, depth)
            plain_only(node, "this", "query")
            return nested("in", node.args["query"], node, taker.take(node.this, depth))

        def compared(node: Any, depth: int) -> Node:
            """A comparison: with ANY (SOME) or ALL of a query, else of two values."""
            quantifier = node.args.get("expression")
            if type(quantifier).__name__ not in ("Any", "All"):
                return taker.compared(node, depth)
            plain_only(node, "this", "expression")
            plain_only(quantifier, "this")
            if type(quantifier.this).__name__ not in _QUERIES:
                raise NotYetFault(
                    "ANY and ALL of a list are not there yet; write IN (1, 2) or list_contains(x, 1)", start_of(node)
                )
            operator, item = COMPARISONS[type(node).__name__], taker.take(node.this, depth)
            if type(quantifier).__name__ == "Any":
                return nested("in", quantifier.this, node, item, operator)
            return Not(nested("in", quantifier.this, node, item, _OPPOSITE[operator]))  # no row says otherwise

        def grouped(node: Any, depth: int) -> Node:
            """GROUPING (a, b): a number with a bit for each, 1 where it is of another grouping set."""
            plain_only(node, "expressions")
            start = start_of(node) or 0
            if inside or not node.expressions:
                raise Fault("needed columns of GROUP BY in GROUPING(), outside of other aggregates", start)
            number: Node | None = None
            for each in node.expressions:
                aggregates.append(Aggregate(GROUPING, taker.take(each, depth), False, None, start))
                bit = Column(f"@{len(aggregates) - 1}")
                doubled = None if number is None else Arithmetic("*", Constant(2, "integer"), number)
                number = bit if doubled is None else Arithmetic("+", doubled, bit)
            assert number is not None
            return number

        def later(node: Any, _: int) -> Node:
            what, *instead = _LATER[type(node).__name__].split("; ")
            raise NotYetFault("; ".join([f"{what}: it is not there yet", *instead]), start_of(node))

        taker = _StatementTaker(
            column,
            parameters=self._values,
            extra={
                **dict.fromkeys(_AGGREGATES, aggregate),
                **dict.fromkeys(_LATER, later),
                **dict.fromkeys(_QUERIES, scalar),
                "Filter": filtered,
                "Explode": unnest,
                "Exists": exists,
                "In": listed,
                "Window": over,
                **dict.fromkeys(COMPARISONS, compared),
                **dict.fromkeys(("Grouping", "GroupingId"), grouped),
            },
        )
        try:
            tree = taker.take(node)
        except RecursionError:
            raise Fault(f"needed at most {MAX_DEPTH} levels of nesting; got more; simplify it") from None
        self.used |= taker.used
        start = taker.places.get(id(tree), start_of(node) or 0)

        def shown(name: str) -> str:
            at = int(name[1:])
            if name.startswith("%"):
                return call_text(overs[at], shown)
            if name.startswith("^"):
                return f"unnest({expression_text(unnests[at][0], shown)})"
            if name.startswith("?"):
                return "(SELECT ...)" if queries[at].kind == "scalar" else f"{queries[at].kind} (SELECT ...)"
            if name.startswith("#"):
                reference = references[at]
                return reference.name if reference.qualifier is None else f"{reference.qualifier}.{reference.name}"
            each = aggregates[at]
            if each.function == GROUPING:
                assert each.argument is not None
                return f"grouping({expression_text(each.argument, shown)})"
            return aggregate_text(
                each.function,
                each.argument,
                each.distinct,
                each.fraction,
                shown,
                each.order,
                each.where,
                each.separator,
            )

        text = expression_text(tree, shown)
        return Expression(
            tree,
            tuple(references),
            tuple(aggregates),
            start,
            text,
            tuple(queries),
            tuple(overs),
            tuple(unnests),
            taker.places,
        )

    def _call(self, node: Any, taker: Taker, depth: int) -> tuple[str, Node | None, float | None] | None:
        """(function, argument, fraction) of an aggregate before OVER; None for what is no aggregate."""
        condition = None
        if type(node).__name__ == "Filter":
            plain_only(node, "this", "expression")
            condition, node = taker.take(node.expression.this, depth), node.this
        if type(node).__name__ not in _AGGREGATES:
            return None
        if type(node).__name__ in COLLECTING:
            raise NotYetFault(
                f"{COLLECTING[type(node).__name__]}() OVER is not there yet; first_value and last_value are, and "
                "GROUP BY in a query in FROM",
                start_of(node),
            )
        argument, distinct, fraction = self._argument(node, taker, depth)
        if distinct:
            raise NotYetFault("DISTINCT before OVER is not there yet; leave it out", start_of(node))
        if condition is not None:
            value = Constant(1, "integer") if argument is None else argument
            argument = Case(((condition, value),), Constant(None, "null"))
        return _AGGREGATES[type(node).__name__], argument, fraction

    def _argument(self, node: Any, taker: Taker, depth: int) -> tuple[Node | None, bool, float | None]:
        name = type(node).__name__
        function = _AGGREGATES[name]
        second = "quantile" if name == "Quantile" else "expression"
        has_share = CATALOGUE[function].argument == "share"
        allowed = ("big_int",) if name == "Count" else (second,) if has_share else ()
        inner = taker.only(node, "this", *allowed)
        fraction = None
        if has_share:
            given = taker.take(node.args[second], depth) if node.args.get(second) is not None else None
            value = given.value if isinstance(given, Constant) and given.kind in ("integer", "number") else None
            if value is None or not 0 <= float(value) <= 1:
                raise Fault(f"needed a fraction from 0 to 1, such as {function}(price, 0.9)", start_of(node))
            fraction = float(value)
        if name == "Count" and (inner is None or type(inner).__name__ == "Star"):
            if inner is not None:
                plain_only(inner)
            return None, False, None
        if inner is None:
            raise Fault(f"needed something to aggregate; got {name.lower()}()", start_of(node))
        distinct = type(inner).__name__ == "Distinct"
        if distinct:
            plain_only(inner, "expressions")
            if len(inner.expressions) != 1:
                raise NotYetFault("DISTINCT of several columns in an aggregate is not there yet", start_of(node))
            inner = inner.expressions[0]
        return taker.take(inner, depth), distinct, fraction


def plain_only(node: Any, *allowed: str) -> None:
    """Raises Fault where a node has other arguments than those allowed."""
    for argument, value in node.args.items():
        if not value or argument in allowed:
            continue
        later = _LATER_IN_SELECT.get(argument)
        start = start_of(node)
        if later is not None:
            what, _, instead = later.partition("; ")
            raise NotYetFault(f"{what} is not there yet; {instead or 'leave it out'}", start)
        raise Fault(f"needed a plain SELECT; got {argument.strip('_').upper()}; leave it out", start)


class _StatementTaker(Taker):
    def refused(self, what: str, node: Any) -> Fault:
        if (told := without_over(node)) is not None:
            return Fault(told, start_of(node))
        fault = super().refused(what, node)
        return Fault(fault.reason.replace("a condition is made of", "expressions are made of"), fault.start)
