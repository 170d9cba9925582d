"""Joins of streams with stored relations as look-ups: a relation's columns are expressions of the stream's tuples.

What is left is a plan of streams alone, which every approximate operator takes; a look-up is a column like others to
WHERE, GROUP BY and aggregates.  So are LEFT JOIN, IN, EXISTS (and NOT, OR of them) and scalar subqueries of relations.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from nile.execution.approximate.stored import StoredRows
from nile.execution.choice import choose
from nile.execution.exact.flow import Home
from nile.execution.exact.run import ExactRun
from nile.execution.options import Options
from nile.execution.values import all_of
from nile.expressions.binding import typed_column
from nile.expressions.tree import (
    Case,
    Column,
    Compare,
    Constant,
    Logic,
    Lookup,
    Node,
    Not,
    columns_of,
    conjunction,
    conjuncts,
    rename,
)
from nile.sql.plan import (
    Field,
    Filter,
    Item,
    Join,
    Outer,
    Plan,
    Project,
    Query,
    Relation,
    Stream,
    leaves_of,
    map_inputs,
)
from nile.streams.accounting import Accounting
from nile.summaries.errors import NotYet
from nile.summaries.heavy import pa

__all__ = ["Lookups"]

_TRUE, _FALSE = Constant(True, "boolean"), Constant(False, "boolean")
_KINDS = ("left", "semi", "anti", "mark")
Pairs = list[tuple[Node, Node]]
"""What must be equal: of tuples, and of stored rows."""


class Lookups:
    """The joins with stored relations of one query, as look-ups.  plan: as given, then of streams alone.

    settled: whether relations have to stay as they are, since rows are handed out as tuples come and not taken back.
    rows: what is looked up in.  Raises NotYet where nothing is equal.
    """

    def __init__(self, home: Home, plan: Plan, *, settled: bool = False) -> None:
        self.rows: list[StoredRows] = []
        self._home = home
        self._settled = settled
        self.plan = plan if _is_stored(plan) else self._told(plan)

    def _told(self, plan: Plan) -> Plan:
        if not any(isinstance(leaf, Relation) for leaf in leaves_of(plan)):
            return plan
        plan = map_inputs(plan, lambda each: each if _is_stored(each) else self._told(each))
        if isinstance(plan, Join) and any(map(_is_stored, plan.inputs)):
            return self._join(plan)
        if isinstance(plan, Outer) and plan.kind in _KINDS and _is_stored(plan.right):
            return self._outer(plan)
        return plan

    def _join(self, plan: Join) -> Plan:
        """A join, of whose inputs some are stored."""
        known: dict[str, Node] = {}
        owner: dict[str, int] = {}
        for k, each in enumerate(plan.inputs):
            if not _is_stored(each):
                known |= {field.name: typed_column(field.name, field.type) for field in each.fields}
                owner |= {field.name: k for field in each.fields}
        same: dict[str, str] = {}
        equal, conditions = list(plan.equal), list(conjuncts(plan.condition))
        waiting = [k for k, each in enumerate(plan.inputs) if _is_stored(each)]
        while waiting:
            found = [(self._pairs(plan.inputs[k], equal, conditions, known, owner), k) for k in waiting]
            (pairs, equals, tests), k = max(found, key=lambda one: len(one[0][0]))
            waiting.remove(k)
            equal = [pair for pair in equal if pair not in equals]
            conditions = [each for each in conditions if each not in tests]
            there, columns = self._stored(plan.inputs[k], pairs, unique=True)
            for left, right in pairs:
                if isinstance(left, Column) and isinstance(right, Column):
                    same[right.name] = same.get(left.name, left.name)
            whose = {owner[name] for left, _ in pairs for name in columns_of(left)}
            known |= columns
            owner |= dict.fromkeys(columns, min(whose, default=0))
            conditions.append(there)
        return self._of_streams(plan, [(same.get(x, x), same.get(y, y)) for x, y in equal], conditions, known, owner)

    def _of_streams(
        self,
        plan: Join,
        equal: Sequence[tuple[str, str]],
        conditions: Sequence[Node],
        known: Mapping[str, Node],
        owner: Mapping[str, int],
    ) -> Plan:
        """What is left of a join, whose stored inputs are `known` by their columns, under what is left to ask."""
        rest, between = list(conditions), []
        for a, b in equal:
            if isinstance(known[a], Column) and isinstance(known[b], Column) and owner[a] != owner[b]:
                between.append((a, b))
            elif a != b:
                rest.append(Compare("=", known[a], known[b]))
        kept = [k for k, each in enumerate(plan.inputs) if not _is_stored(each)]
        inputs = tuple(plan.inputs[k] for k in kept)
        made: Plan = inputs[0]
        if len(inputs) > 1:
            windows = tuple(
                replace(each, left=kept.index(each.left), right=kept.index(each.right)) for each in plan.constraints
            )
            equals = tuple(dict.fromkeys(between))
            made = replace(plan, inputs=inputs, equal=equals, condition=None, constraints=windows)
        for condition in rest:
            made = selected(made, _put(condition, known))
        return Project(made, tuple(Item(field, known[field.name]) for field in plan.fields))

    def _pairs(
        self,
        stored: Plan,
        equal: Sequence[tuple[str, str]],
        conditions: Sequence[Node],
        known: Mapping[str, Node],
        owner: Mapping[str, int],
    ) -> tuple[Pairs, list[tuple[str, str]], list[Node]]:
        """What a stored input is looked up by, of one stream, and the equalities and conditions which that takes."""
        own = {field.name: field.type for field in stored.fields}
        found: list[tuple[int, tuple[Node, Node], tuple[str, str] | None, Node | None]] = []
        for pair in equal:
            for a, b in (pair, pair[::-1]):
                if a in known and b in own:
                    found.append((owner[a], (known[a], typed_column(b, own[b])), pair, None))
        for each in conditions:
            for left, right in _sides(each, own):
                names = columns_of(left)
                if names and all(name in known for name in names):
                    whose = {owner[name] for name in names}
                    if len(whose) == 1:
                        found.append((whose.pop(), (_put(left, known), right), None, each))
        if not found:
            return [], [], []
        counts = [one[0] for one in found]
        best = max(counts, key=counts.count)
        taken = [one for one in found if one[0] == best]
        return (
            [one[1] for one in taken],
            [one[2] for one in taken if one[2] is not None],
            [one[3] for one in taken if one[3] is not None],
        )

    def _outer(self, plan: Outer) -> Plan:
        """A join that keeps the left side's rows, or tells which have a partner, with a stored right side."""
        known: dict[str, Node] = {field.name: typed_column(field.name, field.type) for field in plan.left.fields}
        own = {field.name: field.type for field in plan.right.fields}
        pairs: Pairs = [(known[a], typed_column(b, own[b])) for a, b in plan.equal]
        stored, both = plan.right, []
        for each in conjuncts(plan.condition):
            sides = [one for one in _sides(each, own) if columns_of(one[0]) and known.keys() >= set(columns_of(one[0]))]
            if sides:
                pairs.append(sides[0])
            elif own.keys() >= set(columns_of(each)) and columns_of(each):
                stored = Filter(stored, each)
            else:
                both.append(each)
        if not pairs and both and plan.kind != "left":
            return self._told_by(plan, self._any(stored, both, own))
        looks = any(name in own for each in both for name in columns_of(each))
        there, columns = self._stored(stored, pairs, unique=plan.kind == "left" or looks)
        holds = all_of(there, *(_put(each, known | columns) for each in both))
        assert holds is not None
        if plan.kind != "left":
            return self._told_by(plan, holds)
        if both:
            columns = {
                name: Case(((holds, node),), Constant(None, node.kind), node.kind) for name, node in columns.items()
            }
        items = [Item(field, (known | columns)[field.name]) for field in plan.fields]
        return Project(plan.left, tuple(items))

    def _any(self, stored: Plan, both: Sequence[Node], own: Mapping[str, pa.DataType]) -> Node:
        """Whether a condition is true of any stored row, where nothing has to be equal: NOT IN beside nulls.

        An OR of what speaks of one side each.  Raises NotYet for others.
        """
        condition = conjunction(both)
        assert condition is not None
        parts = condition.items if isinstance(condition, Logic) and condition.operator == "OR" else (condition,)
        found: list[Node] = []
        for part in parts:
            names = set(columns_of(part))
            if names <= own.keys():
                found.append(self._stored(Filter(stored, part), [], unique=False)[0])
            elif names & own.keys():
                raise _unequal(stored)
            else:
                found.append(Logic("AND", (self._stored(stored, [], unique=False)[0], part)))
        return found[0] if len(found) == 1 else Logic("OR", tuple(found))

    def _told_by(self, plan: Outer, holds: Node) -> Plan:
        """A semi, anti or mark join of which is known when a row has a partner."""
        if plan.kind == "semi":
            return selected(plan.left, holds)
        if plan.kind == "anti":  # also where it is not known
            return selected(plan.left, Not(Case(((holds, _TRUE),), _FALSE, "boolean")))
        items = [Item(field, typed_column(field.name, field.type)) for field in plan.left.fields]
        mark = Item(Field(plan.mark, pa.bool_()), Case(((holds, _TRUE),), _FALSE, "boolean"))
        return Project(plan.left, (*items, mark))

    def _stored(self, stored: Plan, pairs: Pairs, *, unique: bool) -> tuple[Node, dict[str, Node]]:
        """(whether a tuple has one, each of their columns) of a plan of relations alone."""
        leaves = leaves_of(stored)
        changing = [leaf.alias for leaf in leaves if isinstance(leaf, Relation) and leaf.changes]
        if changing and self._settled:
            raise NotYet(
                f"approximate join with {changing[0]}: needed a relation that stays as it is, or aggregates; got one "
                "that changes, and rows that are handed out as tuples come; leave out the preference, or join with a "
                "relation that is registered"
            )
        name = " and ".join(dict.fromkeys(leaf.alias for leaf in leaves))
        taken = {rows.name for rows in self.rows}
        numbered = itertools.chain([name], (f"{name} {k}" for k in itertools.count(2)))
        name = next(each for each in numbered if each not in taken)
        fields, computed = [field.name for field in stored.fields], {}
        for k, (_, right) in enumerate(pairs):
            if not isinstance(right, Column):
                computed[k] = Item(Field(f"key {k + 1} of {name}", _type_of(right)), right)
        if computed:
            items = [Item(field, typed_column(field.name, field.type)) for field in stored.fields]
            stored = Project(stored, (*items, *computed.values()))
        keys = [computed[k].name if k in computed else columns_of(right)[0] for k, (_, right) in enumerate(pairs)]
        rows = StoredRows(name, keys, unique, partial(self._read, stored))
        self.rows.append(rows)
        by = tuple(left for left, _ in pairs)
        columns: dict[str, Node] = {}
        for field in stored.fields:
            if field.name in fields:
                typed = typed_column(field.name, field.type)
                columns[field.name] = Lookup(by, rows, field.name, typed.kind, typed.unsigned)
        return Lookup(by, rows, None, "boolean"), columns

    def _read(self, stored: Plan) -> tuple[pa.Table, dict[str, Accounting]]:
        """What relations hold now."""
        query = Query(_settled(stored))
        run = ExactRun(self._home, query, choose(query, Options()))
        return pa.Table.from_batches(list(run.batches()), run.schema), run.accounting


def selected(plan: Plan, condition: Node) -> Plan:
    """The rows for which a condition is true, asked as far below as its columns are."""
    names = set(columns_of(condition))
    match plan:
        case Project():
            made = {item.name: item.node for item in plan.items}
            return replace(plan, input=selected(plan.input, _put(condition, made)))
        case Join():
            for k, each in enumerate(plan.inputs):
                if names <= {field.name for field in each.fields}:
                    inputs = (*plan.inputs[:k], selected(each, condition), *plan.inputs[k + 1 :])
                    return replace(plan, inputs=inputs)
            return replace(plan, condition=all_of(plan.condition, condition))
        case Stream():
            return replace(plan, where=all_of(plan.where, condition))
    return Filter(plan, condition)


def _is_stored(plan: Plan) -> bool:
    """Whether it is of relations alone."""
    return all(isinstance(leaf, Relation) for leaf in leaves_of(plan))


def _settled(plan: Plan) -> Plan:
    """A plan of relations as they are now."""
    return replace(plan, changes=False) if isinstance(plan, Relation) else map_inputs(plan, _settled)


def _put(node: Node, known: Mapping[str, Node]) -> Node:
    return rename(node, lambda column: known.get(column.name, column))


def _sides(node: Node, own: Iterable[str]) -> list[tuple[Node, Node]]:
    """An equality of values of one kind as (of tuples, of stored rows); none where it is something else."""
    names = set(own)
    if not isinstance(node, Compare) or node.operator != "=" or node.left.kind != node.right.kind:
        return []
    both = ((node.left, node.right), (node.right, node.left))
    return [
        (left, right)
        for left, right in both
        if columns_of(right) and names >= set(columns_of(right)) and not names & set(columns_of(left))
    ]


def _type_of(node: Node) -> pa.DataType:
    """The type of a key that is worked out."""
    kinds = {"integer": pa.int64(), "number": pa.float64(), "text": pa.string(), "boolean": pa.bool_()}
    if node.kind in ("timestamp", "date"):
        return pa.timestamp("ns")
    if node.kind not in kinds:
        raise NotYet(f"approximate join: needed keys that are numbers, text or times; got {node.kind}; CAST one side")
    return kinds[node.kind]


def _unequal(stored: Plan) -> NotYet:
    names = " and ".join(dict.fromkeys(leaf.alias for leaf in leaves_of(stored)))
    return NotYet(
        f"approximate join with {names}: needed columns that are equal, by which tuples look rows up; got a condition "
        "without; leave out WITH PREFERENCE, BUDGET and ERROR for the exact join"
    )
