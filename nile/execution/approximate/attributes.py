"""A query over what summaries are of, where that is no single column: expressions, and sets of columns.

Each such attribute is a column that its stream has beside its own (`nile.execution.registry`), and the query is told in
its terms: `lower(k) = 'x'` is a condition on the column "lower(k)", `a.x = b.x AND a.y = b.y` an equality of the two
columns "x, y".  Summaries are then read as those of any column are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from nile.execution.values import all_of
from nile.expressions.attributes import computed_types, constant_of
from nile.expressions.tree import Column, Compare, Constant, In, Logic, Node, columns_of, rebuild
from nile.sql import plan as ops
from nile.sql.catalog import Catalog
from nile.sql.expression_text import expression_text, identifier
from nile.sql.plan import Filter, Join, Plan, Query, Stream, leaves_of, map_inputs
from nile.sql.rewriting.rules import pick_summaries
from nile.summaries.heavy import pa

__all__ = ["attributed", "conditions_told"]

_MOST = 256
"""Combinations of constants that are told one by one."""
Parts = tuple[str, ...]


class _Home(Catalog, Protocol):
    def schema(self, name: str) -> pa.Schema:
        """The columns of a stream."""


def attributed(query: Query, home: _Home) -> Query:
    """The query in terms of the attributes that summaries of its streams are of.  It means the same."""
    parts: dict[str, dict[Parts, str]] = {}
    types: dict[tuple[str, Parts], tuple[pa.DataType, ...]] = {}
    for leaf in leaves_of(query.plan):
        for made in home.summaries.values():
            if made.parts and made.stream == leaf.name:
                parts.setdefault(leaf.alias, {})[made.parts] = made.column
                types[leaf.alias, made.parts] = computed_types(made.parts, home.schema(leaf.name), where=made.name)
    if not parts:
        return query
    named = () if query.preference is None else tuple(term.column for term in query.preference.terms)
    plan = _Telling(parts, types, named).plan(query.plan)
    return pick_summaries(replace(query, plan=plan), home) if plan != query.plan else query


def conditions_told(
    conditions: Sequence[Node], stream: Stream, home: _Home
) -> tuple[tuple[Node, ...], Mapping[str, pa.DataType]]:
    """(conditions of one stream in terms of what its summaries are of, the type of each such attribute by column)."""
    parts: dict[Parts, str] = {}
    types: dict[tuple[str, Parts], tuple[pa.DataType, ...]] = {}
    for made in home.summaries.values():
        if made.parts and made.stream == stream.name:
            parts[made.parts] = made.column
            types[stream.alias, made.parts] = computed_types(made.parts, home.schema(stream.name), where=made.name)
    if not parts or not conditions:
        return (), {}
    told = _Telling({stream.alias: parts}, types, ()).told(conditions)
    kinds = {parts[each]: kinds[0] if len(each) == 1 else pa.string() for (_, each), kinds in types.items()}
    return tuple(told), kinds


class _Telling:
    def __init__(
        self,
        parts: Mapping[str, Mapping[Parts, str]],
        types: Mapping[tuple[str, Parts], tuple[pa.DataType, ...]],
        named: Sequence[str],
    ) -> None:
        self._parts = parts
        self._types = types
        self._named = named

    def plan(self, plan: Plan) -> Plan:
        """A plan with conditions and keys over attributes."""
        plan = map_inputs(plan, self.plan)
        match plan:
            case Stream() if plan.where is not None:
                return replace(plan, where=self._condition(plan.where))
            case Filter() if not isinstance(plan.input, ops.Group):
                return replace(plan, condition=self._condition(plan.condition))
            case Join():
                joined = self._joined(plan)
                return joined if joined.condition is None else replace(
                    joined, condition=self._condition(joined.condition)
                )  # fmt: skip
            case _:
                return plan

    def _condition(self, node: Node) -> Node:
        """Expressions that attributes are, and equalities of all parts of one with constants, as columns."""
        items = node.items if isinstance(node, Logic) and node.operator == "AND" else (node,)
        told = all_of(*self.told(items))
        assert told is not None
        return told

    def told(self, items: Sequence[Node]) -> list[Node]:
        """As `_condition`, of the conditions of an AND."""
        return [self._expression(item) for item in self._sets(items)]

    def _expression(self, node: Node) -> Node:
        alias = self._alias(node)
        if alias is not None and not isinstance(node, Column):
            column = self._parts.get(alias, {}).get((self._text(node, alias),))
            if column is not None:
                return Column(f"{alias}.{column}", getattr(node, "kind", "unknown"))
        return rebuild(node, self._expression)

    def _sets(self, items: Sequence[Node]) -> list[Node]:
        """Conditions of an AND; those that say what each part of a set is become one."""
        said: dict[tuple[str, str], tuple[Node, tuple[Constant, ...]]] = {}
        for item in items:
            told = _equal_to(item)
            alias = None if told is None else self._alias(told[0])
            if told is not None and alias is not None:
                said.setdefault((alias, self._text(told[0], alias)), (item, told[1]))
        left = list(items)
        for alias, attributes in self._parts.items():
            for parts, column in sorted(attributes.items(), key=lambda each: -len(each[0])):
                found = [said.get((alias, part)) for part in parts]
                held = [each for each in found if each is not None and each[0] in left]
                if len(parts) < 2 or len(held) < len(parts) or math.prod(len(each[1]) for each in held) > _MOST:
                    continue
                kinds = self._types[alias, parts]
                values = [constant_of(each, kinds) for each in itertools.product(*(each[1] for each in held))]
                texts = [Constant(value, "text") for value in dict.fromkeys(values) if value is not None]
                if None in values or not texts:
                    continue
                on = Column(f"{alias}.{column}", "text")
                left = [item for item in left if all(item is not each[0] for each in held)]
                left.append(Compare("=", on, texts[0]) if len(texts) == 1 else In(on, tuple(texts)))
        return left

    def _joined(self, join: Join) -> Join:
        """A join on one attribute of each of its streams, where its equalities say no less."""
        aliases = [leaf.alias for leaf in leaves_of(join)]
        if len(aliases) != len(join.inputs):
            return join
        node = join.condition
        items = () if node is None else node.items if isinstance(node, Logic) and node.operator == "AND" else (node,)
        equal: list[tuple[tuple[str, str], tuple[str, str], Node | tuple[str, str]]] = []
        for pair in join.equal:
            (left, right) = (self._own(name, aliases) for name in pair)
            if left is not None and right is not None:
                equal.append((left, right, pair))
        for item in items:
            if isinstance(item, Compare) and item.operator == "=":
                one, other = self._alias(item.left), self._alias(item.right)
                if one is not None and other is not None and one != other:
                    equal.append(((one, self._text(item.left, one)), (other, self._text(item.right, other)), item))
        classes = _classes(equal)
        chosen = self._chosen(aliases, classes)
        if chosen is None:
            return join
        used = {(alias, part) for alias, parts in zip(aliases, chosen, strict=True) for part in parts}
        implied = [source for left, right, source in equal if left in used and right in used]
        keys = [f"{alias}.{self._parts[alias][parts]}" for alias, parts in zip(aliases, chosen, strict=True)]
        rest = [item for item in items if all(item is not each for each in implied)]
        pairs = [pair for pair in join.equal if pair not in implied]
        return replace(
            join,
            equal=(*pairs, *((keys[0], other) for other in keys[1:])),
            condition=all_of(*rest),
        )

    def _chosen(self, aliases: Sequence[str], classes: Mapping[tuple[str, str], int]) -> list[Parts] | None:
        """An attribute of each stream, all of whose parts must be equal; None where there is none, or another is named.

        The one that the preference names, else the one with the most parts.
        """
        fits = []
        for parts, column in self._parts.get(aliases[0], {}).items():
            wanted = [classes.get((aliases[0], part)) for part in parts]
            found = [parts]
            for alias in aliases[1:]:
                for other in self._parts.get(alias, {}):
                    same = [classes.get((alias, part)) for part in other] == wanted and None not in wanted
                    if same and self._types[alias, other] == self._types[aliases[0], parts]:
                        found.append(other)
                        break
            named = any(
                f"{alias}.{self._parts[alias][each]}" in self._named
                for alias, each in zip(aliases, found, strict=False)
            )
            if len(found) == len(aliases) and (named or not self._named):
                fits.append((named, len(parts), column, found))
        return max(fits)[3] if fits else None

    def _own(self, name: str, aliases: Sequence[str]) -> tuple[str, str] | None:
        """(alias, text) of a column."""
        for alias in aliases:
            if name.startswith(f"{alias}."):
                return alias, identifier(name.removeprefix(f"{alias}."))
        return None

    def _alias(self, node: Node) -> str | None:
        """The one stream whose columns an expression is over; None of several, or none."""
        found = {alias for name in columns_of(node) for alias in self._parts if name.startswith(f"{alias}.")}
        alias = next(iter(found), None)
        whole = alias is not None and all(name.startswith(f"{alias}.") for name in columns_of(node))
        return alias if whole and len(found) == 1 else None

    def _text(self, node: Node, alias: str) -> str:
        return expression_text(node, lambda name: identifier(name.removeprefix(f"{alias}.")))


def _equal_to(node: Node) -> tuple[Node, tuple[Constant, ...]] | None:
    """What a condition says to equal one of some constants."""
    if isinstance(node, Compare) and node.operator == "=":
        one, other = (node.left, node.right) if isinstance(node.right, Constant) else (node.right, node.left)
        return (one, (other,)) if isinstance(other, Constant) and not isinstance(one, Constant) else None
    if isinstance(node, In) and all(isinstance(each, Constant) for each in node.choices):
        return node.item, tuple(each for each in node.choices if isinstance(each, Constant))
    return None


def _classes(equal: Sequence[tuple[tuple[str, str], tuple[str, str], object]]) -> dict[tuple[str, str], int]:
    """The class of each expression, by what must equal what."""
    classes: dict[tuple[str, str], int] = {}
    for number, (left, right, _) in enumerate(equal):
        joined = {classes.get(left, number), classes.get(right, number)}
        classes.update(dict.fromkeys([key for key, at in classes.items() if at in joined], number))
        classes[left] = classes[right] = number
    return classes
