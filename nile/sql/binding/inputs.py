"""What a FROM joins: inputs, the equalities and conditions between them, and shared columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Literal

from nile.expressions.binding import kind_of, typed_column
from nile.expressions.places import Fault
from nile.expressions.tree import Column, Node, columns_of, conjunction, rename
from nile.sql import plan as ops
from nile.sql.binding.expression_binder import told_apart
from nile.sql.binding.scope import Scope, ScopeSource, find
from nile.sql.parsed import Reference
from nile.sql.plan import Field, Plan
from nile.sql.rewriting.pushing import recognised

__all__ = ["Inputs", "column_of", "common", "joined_plan", "moved_names", "using"]


def column_of(field: Field) -> Column:
    """A column of a plan as an expression."""
    return typed_column(field.name, field.type)


class Inputs:
    """What a FROM joins, as far as it has been read: inputs, and what must be equal or true of their combinations.

    A comma begins a new group of inputs; an outer join takes the whole group before it as its left side.
    """

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.equal: list[tuple[str, str]] = []
        self.conditions: list[Node] = []
        self._group = (0, 0, 0)
        self._hole = 0

    def add(self, plan: Plan, *, comma: bool) -> None:
        """One more input."""
        if comma:
            self._group = (len(self.plans), len(self.equal), len(self.conditions))
        self.plans.append(plan)

    def outer(
        self,
        kind: Literal["left", "right", "full", "semi", "anti"],
        right: Plan,
        equal: list[tuple[str, str]],
        conditions: Sequence[Node],
        start: int,
    ) -> None:
        """The group so far, joined with one more input in another way.  Raises Fault."""
        plans, pairs, wheres = self._group
        group = self.plans[plans:]
        own = {field.name for each in group for field in each.fields}
        for node in (*conditions, *self.conditions[wheres:]):
            if not own.union(field.name for field in right.fields).issuperset(columns_of(node)):
                raise Fault(
                    f"needed columns of the inputs of this {kind.upper()} JOIN; got one of an input before a comma; "
                    "write JOIN in place of the comma",
                    start,
                )
        left = joined_plan(group, self.equal[pairs:], self.conditions[wheres:])
        del self.plans[plans:], self.equal[pairs:], self.conditions[wheres:]
        owner = dict.fromkeys(own, 0) | {field.name: 1 for field in right.fields}
        rest = []
        for node in conditions:
            pair = recognised(node, owner)
            if pair is None:
                rest.append(node)
            else:
                equal.append(pair if owner[pair[0]] == 0 else pair[::-1])
        self.plans.append(ops.Outer(kind, left, right, tuple(dict.fromkeys(equal)), conjunction(rest)))

    @property
    def group(self) -> list[Plan]:
        """The inputs since the last comma."""
        return self.plans[self._group[0] :]

    def joined(self, start: int) -> Plan:
        """The group so far as one plan, which is taken out of it.  Raises Fault."""
        plans, pairs, wheres = self._group
        plan = joined_plan(self.plans[plans:], self.equal[pairs:], self.conditions[wheres:])
        own = {field.name for field in plan.fields}
        named = {name for node in self.conditions[wheres:] for name in columns_of(node)}
        if not own.issuperset(named.union(*self.equal[pairs:])):
            raise Fault("needed columns of both sides in ON; got one of an input before a comma", start)
        del self.plans[plans:], self.equal[pairs:], self.conditions[wheres:]
        return plan

    def taken(self, names: Set[str], start: int) -> Plan:
        """The one input that has some columns, or the join of those that have; it is taken out.  Raises Fault."""
        for at, each in enumerate(self.plans):
            if names <= {field.name for field in each.fields}:
                self._hole = at
                return self.plans.pop(at)
        if not names <= {field.name for each in self.group for field in each.fields}:
            plan, self._hole, self._group = self.plan(), 0, (0, 0, 0)
            self.plans.clear()
            self.equal.clear()
            self.conditions.clear()
            return plan
        self._hole = self._group[0]
        return self.joined(start)

    def put(self, plan: Plan, moved: Mapping[str, Field], *, comma: bool) -> None:
        """An input in the place of the one that was taken out, of whose columns some are called differently now."""
        if not moved:
            self.add(plan, comma=comma)
            return
        self.plans.insert(self._hole, plan)
        names = {old: field.name for old, field in moved.items()}
        self.equal[:] = [(names.get(a, a), names.get(b, b)) for a, b in self.equal]
        self.conditions[:] = [
            rename(each, lambda column: replace(column, name=names.get(column.name, column.name)))
            for each in self.conditions
        ]

    def plan(self) -> Plan:
        """All of it."""
        return joined_plan(self.plans, self.equal, self.conditions)


def moved_names(moved: Mapping[str, Field], known: list[ScopeSource], merged: dict[str, Field]) -> None:
    """Let names mean what columns have become in a query around them."""
    for at, each in enumerate(known):
        known[at] = replace(each, columns={name: moved.get(field.name, field) for name, field in each.columns.items()})
    merged.update({name: moved.get(field.name, field) for name, field in merged.items()})


def joined_plan(plans: Sequence[Plan], pairs: Sequence[tuple[str, str]], conditions: Sequence[Node]) -> Plan:
    """The join of some inputs under equalities and conditions; of one input a selection."""
    if len(plans) == 1:
        plan, rest = plans[0], list(conditions)
    else:
        equal, rest = list(pairs), []
        owner = {field.name: at for at, each in enumerate(plans) for field in each.fields}
        for condition in conditions:
            pair = recognised(condition, owner)
            if pair is None:
                rest.append(condition)
            elif pair not in equal and pair[::-1] not in equal:
                equal.append(pair)
        plan = ops.Join(tuple(plans), tuple(equal))
    remaining = conjunction(rest)
    return plan if remaining is None else ops.Filter(plan, remaining)


def common(before: Scope, source: ScopeSource, start: int) -> tuple[Reference, ...]:
    """NATURAL JOIN: the columns that both sides have."""
    names = [name for each in before.sources for name in each.columns]
    both = [Reference(None, name, start) for name in source.columns if find(name, names)]
    if not both:
        raise Fault("needed columns of the same name on both sides of NATURAL JOIN; got none; write ON", start)
    return tuple(both)


def using(
    reference: Reference, before: Scope, source: ScopeSource, equal: list[tuple[str, str]], *, keep_right: bool
) -> dict[str, Field]:
    """JOIN ... USING (name): both sides are equal, and the name alone means the side that has every row."""
    left = before.resolve(reference)
    right = Scope((source,)).resolve(reference)
    if kind_of(left.type) != kind_of(right.type) or (kind_of(left.type) == "other" and left.type != right.type):
        raise Fault(
            f"needed columns of one kind for USING; got {left.name}, {left.type}, and {right.name}, {right.type}; "
            "write ON with a CAST",
            reference.start,
        )
    told_apart(column_of(left), left.type, "USING", reference.start)
    equal.append((left.name, right.name))
    name = next(name for name, column in source.columns.items() if column == right)
    return {name: right if keep_right else left}
