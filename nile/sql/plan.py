"""The bound plan: what a statement means, over columns that exist, before anyone has decided how to run it.

A plan is a tree of frozen nodes.  Inside it every column has one name: a source's column is "alias.column", what a
projection or a group makes is called as the statement calls it.  Expressions are trees of `nile.expressions.tree`,
typed (`kind`), whose `Column` names are those of the node's input.  Nothing here holds data, text positions or
callables, so that two plans are equal when they mean the same, and a plan can be written out again (`nile.sql.text`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from nile.expressions.tree import Node
from nile.sql.over import Frame
from nile.sql.windows import Rows, Slide, StreamWindow
from nile.summaries.heavy import pa

__all__ = [
    "AggregateItem",
    "Constraint",
    "Distinct",
    "Field",
    "Filter",
    "Group",
    "Item",
    "Join",
    "Limit",
    "Outer",
    "Over",
    "OverItem",
    "Plan",
    "Preference",
    "Project",
    "Query",
    "Relation",
    "Rows",
    "SetOperation",
    "Slide",
    "Sort",
    "SortKey",
    "Stream",
    "StreamWindow",
    "Term",
    "inputs_of",
    "leaves_of",
    "map_inputs",
    "walk",
    "with_inputs",
]


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a node's output: its name inside the plan and its Arrow type."""

    name: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Stream:
    """A registered stream, read in event-time order.

    alias: what the statement calls it; position: its place among the statement's streams, which orders ties;
    fields: the columns that are read, named "alias.column"; time: its event-time column, as in the source;
    window: its own (of all tuples above it); where: conditions that its own tuples must meet before they enter a
    window (ROWS windows count what is left), as the rewriter pushed them down.
    """

    name: str
    alias: str
    position: int
    fields: tuple[Field, ...]
    time: str
    window: StreamWindow = None
    where: Node | None = None


@dataclass(frozen=True, slots=True)
class Relation:
    """A stored relation: valid at all times.  Fields and where as of a Stream."""

    name: str
    alias: str
    fields: tuple[Field, ...]
    where: Node | None = None


@dataclass(frozen=True, slots=True)
class Filter:
    """The rows for which the condition is true."""

    input: Plan
    condition: Node

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.input.fields


@dataclass(frozen=True, slots=True)
class Item:
    """A named expression; its values are cast to the field's type where they have another of the same kind."""

    field: Field
    node: Node

    @property
    def name(self) -> str:
        return self.field.name


@dataclass(frozen=True, slots=True)
class Project:
    """One output row an input row, duplicates kept."""

    input: Plan
    items: tuple[Item, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(item.field for item in self.items)


@dataclass(frozen=True, slots=True)
class Constraint:
    """|ts of input `left` - ts of input `right`| <= window (ns).  directed: left is not later than right."""

    left: int
    right: int
    window: int


@dataclass(frozen=True, slots=True)
class Join:
    """Combinations of one row of each input.

    equal: pairs of columns that must be equal (null equals nothing), any two inputs; condition: what else must be
    true of a combination, over all columns; constraints: pairwise windows over inputs that are streams (with filters
    and projections), complete after the rewriter has filled in what follows by shortest path; given: how many of
    them, from the front, the statement gave; directed: DWINDOW, along the path of the constraints either A before B
    before C or C before B before A.  No constraints: an output holds while all its members do.  The streams under
    constraints have no window of their own.
    Fields: the inputs', one after the other.
    """

    inputs: tuple[Plan, ...]
    equal: tuple[tuple[str, str], ...]
    condition: Node | None = None
    constraints: tuple[Constraint, ...] = ()
    given: int = 0
    directed: bool = False

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(field for each in self.inputs for field in each.fields)


@dataclass(frozen=True, slots=True)
class Outer:
    """A join of two that keeps, or keeps only, rows without a partner.

    kind: of left, right and full the pairs, and each row of that side (of both) that has no partner beside nulls; of
    semi and anti the left's rows, as often as they stand there, that have one, or have none.  equal: pairs of columns
    (left, right) that must be equal; condition: what else must be true of a pair, over both inputs' columns.
    """

    kind: Literal["left", "right", "full", "semi", "anti"]
    left: Plan
    right: Plan
    equal: tuple[tuple[str, str], ...] = ()
    condition: Node | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.left.fields if self.kind in ("semi", "anti") else (*self.left.fields, *self.right.fields)


@dataclass(frozen=True, slots=True)
class Distinct:
    """Each different row once; nulls are alike."""

    input: Plan

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.input.fields


@dataclass(frozen=True, slots=True)
class SetOperation:
    """UNION, INTERSECT or EXCEPT of two inputs of the same number and kinds of columns; names of the left."""

    kind: Literal["union", "intersect", "except"]
    all: bool
    left: Plan
    right: Plan

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.left.fields


@dataclass(frozen=True, slots=True)
class AggregateItem:
    """An aggregate.  function: its name in `nile.aggregates.catalogue`; argument None is count(*).

    distinct: of different values; fraction: of a quantile.
    """

    field: Field
    function: str
    argument: Node | None
    distinct: bool = False
    fraction: float | None = None

    @property
    def name(self) -> str:
        return self.field.name


@dataclass(frozen=True, slots=True)
class Group:
    """One row per group: its keys, then its aggregates.  Without keys one row always, as in SQL."""

    input: Plan
    by: tuple[Item, ...]
    aggregates: tuple[AggregateItem, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        return (*(item.field for item in self.by), *(item.field for item in self.aggregates))


@dataclass(frozen=True, slots=True)
class OverItem:
    """A window function.

    function: a name of `nile.sql.over.FUNCTIONS` or of the catalogue of aggregates; arguments: of the call, none for
    count(*); frame None: up to the last peer where there is an order, else the whole partition.
    """

    field: Field
    function: str
    arguments: tuple[Node, ...]
    by: tuple[Node, ...] = ()
    order: tuple[SortKey, ...] = ()
    frame: Frame | None = None
    fraction: float | None = None

    @property
    def name(self) -> str:
        return self.field.name

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every expression in it."""
        return (*self.arguments, *self.by, *(key.node for key in self.order))


@dataclass(frozen=True, slots=True)
class Over:
    """Each row with its values of window functions behind it."""

    input: Plan
    items: tuple[OverItem, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        return (*self.input.fields, *(item.field for item in self.items))


@dataclass(frozen=True, slots=True)
class SortKey:
    """ORDER BY node, over the columns of the Sort's input; nulls_last: where nulls go (DuckDB: last)."""

    node: Node
    descending: bool = False
    nulls_last: bool = True


@dataclass(frozen=True, slots=True)
class Sort:
    """The snapshot in order: at the top of a query that returns one.

    Above it are at most a Limit and a Project, which takes off what was only sorted by.
    """

    input: Plan
    keys: tuple[SortKey, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.input.fields


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `count` rows after `offset`: only at the top of a query that returns a snapshot."""

    input: Plan
    count: int | None
    offset: int = 0

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.input.fields


Plan = Stream | Relation | Filter | Project | Join | Outer | Distinct | SetOperation | Group | Over | Sort | Limit


@dataclass(frozen=True, slots=True)
class Term:
    """What a preference looks at: the estimated count of a column's value, or that count times the value."""

    column: str
    by: Literal["count", "value"] = "count"


@dataclass(frozen=True, slots=True)
class Preference:
    """WITH PREFERENCE kind term, ... FADE FACTOR fade."""

    kind: Literal["asc", "desc", "weighted"]
    terms: tuple[Term, ...] = ()
    fade: float = 1.0


@dataclass(frozen=True, slots=True)
class Query:
    """A bound SELECT (or set operation of several).

    plan: its root has the output's columns, named as the user sees them.  window: the WINDOW w of the whole
    statement (ns), which is also on every stream below that has none of its own; windowed: whether any window was
    named anywhere.  budget: (unit, amount) of a Budget; error: (error, confidence, otherwise) of an ErrorTarget.
    summaries: names of the CREATE SUMMARY statements that the rewriter picked, one per stream that has one.
    """

    plan: Plan
    window: int | None = None
    windowed: bool = False
    preference: Preference | None = None
    budget: tuple[str, float] | None = None
    error: tuple[float, float, str] | None = None
    summaries: tuple[tuple[str, str], ...] = ()


def inputs_of(plan: Plan) -> tuple[Plan, ...]:
    """The plans that a node reads."""
    match plan:
        case Join():
            return plan.inputs
        case SetOperation() | Outer():
            return (plan.left, plan.right)
        case Stream() | Relation():
            return ()
        case _:
            return (plan.input,)


def with_inputs(plan: Plan, inputs: Sequence[Plan]) -> Plan:
    """The node over other inputs, as many as it has."""
    match plan:
        case Join():
            return replace(plan, inputs=tuple(inputs))
        case SetOperation() | Outer():
            left, right = inputs
            return replace(plan, left=left, right=right)
        case Stream() | Relation():
            return plan
        case _:
            (only,) = inputs
            return replace(plan, input=only)


def map_inputs(plan: Plan, change: Callable[[Plan], Plan]) -> Plan:
    """The node over its inputs changed."""
    return with_inputs(plan, [change(each) for each in inputs_of(plan)])


def walk(plan: Plan) -> list[Plan]:
    """A node and all below it, the node first, inputs from left to right."""
    return [plan, *(node for each in inputs_of(plan) for node in walk(each))]


def leaves_of(plan: Plan) -> list[Stream | Relation]:
    """The streams and relations below a node, from left to right."""
    return [node for node in walk(plan) if isinstance(node, Stream | Relation)]
