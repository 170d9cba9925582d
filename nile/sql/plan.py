"""The bound plan: what a statement means, over resolved columns, before it is decided how to run it.

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
from nile.sql.columns import AggregateItem, Field, Item, OverItem, SortKey
from nile.sql.preferring import Preference, Term
from nile.sql.windows import Rows, Slide, StreamWindow
from nile.summaries.heavy import pa

__all__ = [
    "AggregateItem", "Constraint", "Distinct", "Every", "Field", "Filter", "Group", "Hop", "Item", "Join", "Limit",
    "OnClose", "Outer", "Over", "OverItem", "Plan", "Preference", "Project", "Query", "Relation", "Rows", "Sample",
    "SetOperation", "Slide", "Sort", "SortKey", "Stream", "StreamWindow", "Term", "ToStream", "Unnest", "Windowed",
    "inputs_of", "leaves_of", "map_inputs", "walk", "with_inputs",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stream:
    """A registered stream, read in event-time order.

    alias: its name in the statement; position: its place among the statement's streams, which breaks ties;
    fields: the columns that are read, named "alias.column"; time: its event-time column, as in the source;
    window: its own window; where: conditions that its tuples must satisfy before they enter a window (ROWS windows
    count what is left), as pushed down by the rewriter.
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
    """A stored relation: valid at all times, or (changes) as it is at each instant.  Else as of a Stream."""

    name: str
    alias: str
    fields: tuple[Field, ...]
    where: Node | None = None
    changes: bool = False


@dataclass(frozen=True, slots=True)
class Filter:
    """The rows for which the condition is true."""

    input: Plan
    condition: Node

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.input.fields


@dataclass(frozen=True, slots=True)
class Project:
    """One output row per input row, duplicates kept."""

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
    semi and anti the left's rows that have one, or have none; of mark all, and a column `mark`: whether they have one.
    equal: pairs of columns (left, right); condition: what else must be true of a pair, over both inputs' columns.
    """

    kind: Literal["left", "right", "full", "semi", "anti", "mark"]
    left: Plan
    right: Plan
    equal: tuple[tuple[str, str], ...] = ()
    condition: Node | None = None
    mark: str = ""

    @property
    def fields(self) -> tuple[Field, ...]:
        mark = (Field(self.mark, pa.bool_()),)
        return self.left.fields + {"semi": (), "anti": (), "mark": mark}.get(self.kind, self.right.fields)


@dataclass(frozen=True, slots=True)
class Distinct:
    """Each distinct row once; nulls are equal."""

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
class Group:
    """One row per group: its keys, then its aggregates.  Without keys one row always, as in SQL."""

    input: Plan
    by: tuple[Item, ...]
    aggregates: tuple[AggregateItem, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        return (*(item.field for item in self.by), *(item.field for item in self.aggregates))


@dataclass(frozen=True, slots=True)
class Over:
    """Each row, with the values of its window functions appended."""

    input: Plan
    items: tuple[OverItem, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        return (*self.input.fields, *(item.field for item in self.items))


@dataclass(frozen=True, slots=True)
class ToStream:
    """A changing relation as a stream (CQL): at each instant what it gained, lost, or has.

    istream: rows added, dstream: rows removed, rstream: all rows whenever anything changes.
    """

    kind: Literal["istream", "dstream", "rstream"]
    input: Plan

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.input.fields


@dataclass(frozen=True, slots=True)
class Sample:
    """Each tuple of a stream with probability `share`, by its number and the seed alone."""

    input: ToStream
    share: float
    seed: int

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.input.fields


@dataclass(frozen=True, slots=True)
class Windowed:
    """A query's output stream in a window: a relation again.  position: its place among the streams."""

    input: ToStream | Sample
    window: StreamWindow
    position: int

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.input.fields


@dataclass(frozen=True, slots=True)
class Hop:
    """Each row once per tumbling or hopping window that its time is in: window_start <= time < window_end.

    time: a column of the input; size, slide: ns, windows begin at the multiples of slide since 1970; names: the names
    of the two bounds; closes: whether rows are removed when their window ends.
    """

    input: Plan
    time: str
    size: int
    slide: int
    names: tuple[str, str]
    closes: bool = False

    @property
    def fields(self) -> tuple[Field, ...]:
        return (*self.input.fields, *(Field(name, pa.timestamp("us")) for name in self.names))


@dataclass(frozen=True, slots=True)
class Unnest:
    """Each row once for each element of its lists, the elements appended; none where all of them are empty or null.

    items: the lists, one beside the other: of a shorter one what is missing is null; their fields are the elements'.
    Right below a Project which names every element, as it is written.
    """

    input: Plan
    items: tuple[Item, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        return (*self.input.fields, *(item.field for item in self.items))


@dataclass(frozen=True, slots=True)
class OnClose:
    """Rows as they are when their window ends, once.  span: ns, within which after a tuple its windows have ended.

    end: the column with that time, which is removed.
    """

    input: Plan
    end: str
    span: int

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(field for field in self.input.fields if field.name != self.end)


@dataclass(frozen=True, slots=True)
class Every:
    """The changes between two multiples of `step` ns, reported at the later one."""

    input: Plan
    step: int

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.input.fields


@dataclass(frozen=True, slots=True)
class Sort:
    """The snapshot in order: at the top of a query, below a Limit and a Project without what is sorted by."""

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


_Unary = (
    Filter | Project | Distinct | Group | Over | Sort | Limit | Hop | Unnest | ToStream | Windowed | OnClose | Every
)
Plan = Stream | Relation | Join | Outer | SetOperation | Sample | _Unary


@dataclass(frozen=True, slots=True)
class Query:
    """A bound SELECT (or set operation of several).

    plan: its root has the output's columns, named as the user sees them.
    window: the WINDOW w of the whole statement (ns), which is also on every stream below that has none of its own;
    windowed: whether any window was named anywhere. budget: (unit, amount) of a Budget; error: (error, confidence,
    otherwise) of an ErrorTarget. summaries: names of the CREATE SUMMARY statements that the rewriter picked, one per
    stream that has one. emit: what EMIT says to output; None: no EMIT.
    """

    plan: Plan
    window: int | None = None
    windowed: bool = False
    preference: Preference | None = None
    budget: tuple[str, float] | None = None
    error: tuple[float, float, str] | None = None
    summaries: tuple[tuple[str, str], ...] = ()
    emit: str | None = None


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
            return replace(plan, input=only)  # type: ignore[arg-type]


def map_inputs(plan: Plan, change: Callable[[Plan], Plan]) -> Plan:
    """The node over transformed inputs."""
    return with_inputs(plan, [change(each) for each in inputs_of(plan)])


def walk(plan: Plan) -> list[Plan]:
    """A node and all its descendants, the node first, inputs from left to right."""
    return [plan, *(node for each in inputs_of(plan) for node in walk(each))]


def leaves_of(plan: Plan) -> list[Stream | Relation]:
    """The streams and relations below a node, from left to right."""
    return [node for node in walk(plan) if isinstance(node, Stream | Relation)]
