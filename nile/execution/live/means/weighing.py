"""What of a standing query may be answered from a sample, and the query that carries weights for it.

Design.  Every tuple that is let in carries `_nile_w`, the inverse of the probability that it was: 1 while all are.
Counts and sums become sums of weights, and beside them stand sums that are 0 as long as all weights are 1, from which
intervals follow (Horvitz-Thompson).  So the exact plan keeps both, through windows, groups and negative tuples, a rate
of sampling may change with every push, and numbers are exact again once the last weighed tuple has left the windows.
Tuples of one stream are drawn each for itself; those of a join by the key that all its streams share, so that partners
stay together; those of DISTINCT and of sets by their values, all of a value or nothing of it.
Source: STREAM (CIDR 2003), section 5.2; estimators: Cochran, Sampling Techniques, 1977, sections 2 and 11.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal

from nile.execution.choice import Choice
from nile.execution.live.means.nodes import (
    counted,
    fits,
    is_whole,
    kind_in,
    minus,
    of_group,
    one,
    or_zero,
    over,
    plus,
    times,
    whole,
    zero,
)
from nile.expressions.tree import Call, Case, Column, Compare, Constant, Kind, Node, rename
from nile.sql.columns import AggregateItem, Field, Item
from nile.sql.plan import (
    Distinct,
    Filter,
    Group,
    Hop,
    Join,
    Plan,
    Project,
    Query,
    SetOperation,
    Stream,
    Unnest,
    leaves_of,
    walk,
)
from nile.summaries.heavy import pa

__all__ = ["GROUPS", "GROUP_OF", "WEIGHT", "Drawn", "Told", "Weighed", "weighed"]

WEIGHT, GROUP_OF = "_nile_w", "_nile_g"
GROUPS = 8
"""Random groups of keys, between which totals of a join vary."""
Drawn = Literal["tuples", "keys", "values"]


@dataclass(frozen=True, slots=True)
class Told:
    """An aggregate among the output's columns.  hidden: what its interval is made of, by name."""

    column: int
    function: str
    hidden: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Weighed:
    """A query over what is sampled.

    query: with hidden columns after the `shown` ones of its output; drawn: how tuples are; values: of each stream, by
    what (keys, values); window: ns, the longest, None without an end; told: aggregates, where it groups; by: columns
    of its groups; weight, group: hidden columns of one that does not group.
    """

    query: Query
    drawn: Drawn
    shown: int
    window: int | None
    values: Mapping[str, tuple[Item, ...]]
    grouped: bool = False
    told: tuple[Told, ...] = ()
    by: int = 0
    weight: str | None = None
    group: str | None = None


def weighed(query: Query, choice: Choice, live: Mapping[str, object]) -> Weighed | None:
    """The query made fit for samples; None: nothing sound can be said of a sample, so it runs exactly.

    Not sampled are: outer joins, NOT EXISTS and the like, where fewer tuples make more output; top k, window functions,
    streams of relations, windows of rows, stored relations, and joins whose streams do not all share a key.  Both sides
    of EXCEPT are drawn by the same values.
    """
    leaves = leaves_of(query.plan)
    streams = [leaf for leaf in leaves if isinstance(leaf, Stream) and leaf.name in live]
    if len(streams) < len(leaves) or choice.scheduling != "nta" or choice.emit not in ("append", "changes", "snapshot"):
        return None
    if not all(leaf.window is None or isinstance(leaf.window, int) for leaf in streams):
        return None
    nodes = walk(query.plan)
    if any(isinstance(each, Distinct | SetOperation) for each in nodes):
        return _by_value(query, choice, streams)
    drawn: Drawn = "keys" if any(isinstance(each, Join) for each in nodes) else "tuples"
    values: dict[str, tuple[Item, ...]] = {}
    if drawn == "keys":
        shared = _shared_key(nodes, streams)
        if shared is None:
            return None
        values = shared
    elif len(streams) != 1:
        return None
    try:
        return _Weighing(drawn).of(query, choice, _window(nodes, streams), values)
    except _Unfit:
        return None


class _Unfit(Exception):
    """Nothing sound can be said of a sample."""


def _window(nodes: list[Plan], streams: list[Stream]) -> int | None:
    pairs = [each.window for node in nodes if isinstance(node, Join) for each in node.constraints]
    own = [leaf.window for leaf in streams]
    if pairs:
        return max(pairs)
    return None if None in own else max(each for each in own if isinstance(each, int))


def _shared_key(nodes: list[Plan], streams: list[Stream]) -> dict[str, tuple[Item, ...]] | None:
    """Of each stream the column of one key that all must have equal; None: there is no such key."""
    fields = {field.name: (leaf, field) for leaf in streams for field in leaf.fields}
    classes: list[set[str]] = []
    for node in nodes:
        for pair in node.equal if isinstance(node, Join) else ():
            near = [one for one in classes if one & set(pair)]
            classes = [one for one in classes if one not in near] + [set(pair).union(*near)]
    for each in classes:
        found: dict[str, tuple[Item, ...]] = {}
        aliases = set()
        for name in sorted(each & fields.keys()):
            leaf, field = fields[name]
            own = field.name.removeprefix(f"{leaf.alias}.")
            item = Item(Field(own, field.type), Column(own, kind_in(field), True))
            if leaf.alias not in aliases and found.setdefault(leaf.name, (item,)) == (item,):
                aliases.add(leaf.alias)
        if len(aliases) == len(streams):
            return found
    return None


def _by_value(query: Query, choice: Choice, streams: list[Stream]) -> Weighed | None:
    """DISTINCT and sets: what a row that comes out is made of decides."""
    plan = query.plan
    while isinstance(plan, Filter | Project):
        plan = plan.input
    sides: dict[str, tuple[Item, ...]] = {}
    if choice.emit == "append" or not _sides(plan, sides, plan.fields):
        return None
    return Weighed(query, "values", len(query.plan.fields), _window([], streams), sides)


def _sides(plan: Plan, found: dict[str, tuple[Item, ...]], fields: tuple[Field, ...]) -> bool:
    """Collect of each stream the values that its rows are told apart by; whether there are such."""
    if isinstance(plan, SetOperation):
        return _sides(plan.left, found, fields) and _sides(plan.right, found, fields)
    if isinstance(plan, Distinct):
        return _sides(plan.input, found, fields)
    items: tuple[Item, ...] | None = None
    while isinstance(plan, Filter | Project):
        if isinstance(plan, Project):
            if items is not None:
                return False
            items = plan.items
        plan = plan.input
    if not isinstance(plan, Stream):
        return False
    if items is None:
        items = tuple(Item(field, Column(field.name, kind_in(field), True)) for field in plan.fields)
    alike = tuple(
        Item(Field(str(k), field.type), item.node) for k, (field, item) in enumerate(zip(fields, items, strict=True))
    )
    alias = plan.alias
    own = tuple(Item(each.field, _unnamed(each.node, alias)) for each in alike)
    return found.setdefault(plan.name, own) == own


def _unnamed(node: Node, alias: str) -> Node:
    return rename(node, lambda column: replace(column, name=column.name.removeprefix(f"{alias}.")))


class _Weighing:
    """One query on its way."""

    def __init__(self, drawn: Drawn) -> None:
        self._drawn = drawn
        self._numbers = count()

    def of(self, query: Query, choice: Choice, window: int | None, values: Mapping[str, tuple[Item, ...]]) -> Weighed:
        plan, shown = query.plan, len(query.plan.fields)
        groups = [each for each in walk(plan) if isinstance(each, Group)]
        if not groups:
            made, weight, group = self._below(plan)
            hidden = [Item(Field(WEIGHT, pa.int64()), weight)]
            hidden += [Item(Field(GROUP_OF, pa.int64()), group)] if self._drawn == "keys" else []
            items = [Item(field, Column(field.name, kind_in(field), True)) for field in plan.fields]
            if isinstance(plan, Project) and isinstance(made, Project):
                items, hidden, made = list(plan.items), self._again(hidden, made), made.input
            made = Project(made, (*items, *hidden))
            group_of = GROUP_OF if self._drawn == "keys" else None
            window = 0 if self._drawn == "tuples" else window  # nothing is held of a selection
            return Weighed(replace(query, plan=made), self._drawn, shown, window, values, weight=WEIGHT, group=group_of)
        if len(groups) > 1 or choice.emit == "append":
            raise _Unfit
        made, told = self._above(plan)
        by = len(groups[0].by)
        shown_names = [field.name for field in query.plan.fields]
        found = tuple(
            replace(each, column=shown_names.index(name)) for name, each in told.items() if name in shown_names
        )
        return Weighed(replace(query, plan=made), self._drawn, shown, window, values, True, found, by)

    @staticmethod
    def _again(hidden: list[Item], made: Project) -> list[Item]:
        """What hidden items are in terms of the projection's input."""
        known = {item.name: item.node for item in made.items}
        return [replace(item, node=known[item.node.name]) for item in hidden if isinstance(item.node, Column)]

    def _below(self, plan: Plan) -> tuple[Plan, Node, Node]:
        """(below a group, with weights; the weight of a row; the random group of its key)."""
        match plan:
            case Stream():
                weight, group = f"{plan.alias}.{WEIGHT}", f"{plan.alias}.{GROUP_OF}"
                names = (weight, group) if self._drawn == "keys" else (weight,)
                made = replace(plan, fields=(*plan.fields, *(Field(name, pa.int64()) for name in names)))
                return made, whole(weight), whole(group)
            case Filter() | Hop() | Unnest():
                below, weight_of, group_of = self._below(plan.input)
                return replace(plan, input=below), weight_of, group_of
            case Project():
                below, weight_of, group_of = self._below(plan.input)
                number = next(self._numbers)
                names = (f"{WEIGHT}{number}", f"{GROUP_OF}{number}")
                items = [Item(Field(names[0], pa.int64()), weight_of)]
                items += [Item(Field(names[1], pa.int64()), group_of)] if self._drawn == "keys" else []
                return Project(below, (*plan.items, *items)), whole(names[0]), whole(names[1])
            case Join():
                parts = [self._below(each) for each in plan.inputs]
                weights, group_nodes = tuple(part[1] for part in parts), tuple(part[2] for part in parts)
                joined = replace(plan, inputs=tuple(part[0] for part in parts))
                return joined, Call("greatest", weights, "integer"), Call("greatest", group_nodes, "integer")
            case _:
                raise _Unfit

    def _above(self, plan: Plan) -> tuple[Plan, dict[str, Told]]:
        """(from the group up, with what intervals are made of; aggregates by the name of their column)."""
        match plan:
            case Group():
                return self._group(plan)
            case Filter():
                made, told = self._above(plan.input)
                return replace(plan, input=made), told
            case Project():
                made, told = self._above(plan.input)
                kept = {
                    item.name: told[item.node.name]
                    for item in plan.items
                    if isinstance(item.node, Column) and item.node.name in told
                }
                hidden = dict.fromkeys(name for each in kept.values() for name in each.hidden.values())
                types = {field.name: field for field in made.fields}
                items = [Item(types[name], Column(name, kind_in(types[name]), True)) for name in hidden]
                return Project(made, (*plan.items, *items)), kept
            case _:
                raise _Unfit

    def _group(self, plan: Group) -> tuple[Plan, dict[str, Told]]:
        below, weight, group = self._below(plan.input)
        sums: dict[Node, str] = {}
        items = [Item(each.field, Column(each.name, kind_in(each.field), True)) for each in plan.by]
        told: dict[str, Told] = {}
        kept: list[AggregateItem] = []
        excess = times(weight, minus(weight, one()))

        def total(node: Node) -> str:
            return sums.setdefault(node, f"_nile_{len(sums)}")

        for each in plan.aggregates:
            x = each.argument
            if each.distinct or each.function not in ("count", "sum", "avg") or not fits(each):
                kept.append(each)
                items.append(Item(each.field, Column(each.name, kind_in(each.field), True)))
                told[each.name] = Told(0, "other", {})
                continue
            hidden: dict[str, str] = {}
            if each.function == "count":
                kept.append(each)
                more = total(counted(x, minus(weight, one())))
                column: Node = Column(each.name, "integer", True)
                items.append(Item(each.field, plus(column, or_zero(more, "integer"))))
                hidden = self._parts(total, "n", counted(x, weight), counted(x, excess), None, group)
            else:
                assert x is not None
                kind: Kind = "integer" if each.function == "sum" and pa.types.is_integer(each.field.type) else "number"
                kept.append(each)
                more = total(times(x, minus(weight, one())))
                column = Column(each.name, kind_in(each.field), True)
                if each.function == "sum":
                    items.append(Item(each.field, plus(column, or_zero(more, kind), kind)))
                    hidden = self._parts(total, "x", times(x, weight), excess, x, group)
                else:
                    number = AggregateItem(Field(f"_nile_n_{each.name}", pa.int64()), "count", x)
                    kept.append(number)
                    many = Column(number.name, "integer", True)
                    beyond = or_zero(total(counted(x, minus(weight, one()))), "integer")
                    all_of_them = plus(many, beyond)
                    mean = over(plus(times(column, many, "number"), or_zero(more, "number"), "number"), all_of_them)
                    items.append(Item(each.field, Case(((Compare("=", beyond, zero()), column),), mean, "number")))
                    hidden = self._parts(total, "x", times(x, weight), excess, x, group)
                    hidden |= {f"n{key}": name for key, name in self._parts(
                        total, "n", counted(x, weight), counted(x, excess), None, group).items()}  # fmt: skip
                    hidden["many"] = f"_nile_m_{each.name}"
                    items.append(Item(Field(hidden["many"], pa.int64()), all_of_them))
            told[each.name] = Told(0, each.function, hidden)
        made = tuple(
            AggregateItem(Field(name, pa.int64() if is_whole(node) else pa.float64()), "sum", node)
            for node, name in sums.items()
        )
        used = {name for each in told.values() for name in each.hidden.values()}
        items += [Item(one.field, Column(one.name, kind_in(one.field), True)) for one in made if one.name in used]
        order = {field.name: k for k, field in enumerate(plan.fields)}
        items.sort(key=lambda item: order.get(item.name, len(order)))
        return Project(Group(below, plan.by, (*kept, *made)), tuple(items)), told

    def _parts(
        self,
        total: Callable[[Node], str],
        what: str,
        of_all: Node,
        excess: Node,
        x: Node | None,
        group: Node,
    ) -> dict[str, str]:
        """Sums that are 0 while all weights are 1: of squares, or of each random group of keys."""
        if self._drawn == "keys":
            return {f"{what}{k}": total(of_group(group, k, of_all)) for k in range(GROUPS)}
        if x is None:
            return {"e": total(excess)}
        of_values = counted(x, excess)
        number = times(x, Constant(1.0, "number"), "number")
        return {
            "e": total(of_values),
            "ex": total(times(number, excess, "number")),
            "exx": total(times(times(number, number, "number"), excess, "number")),
        }
