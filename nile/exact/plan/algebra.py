"""The physical algebra of a continuous query: what is computed, over which windows, but not how.

A plan is a tree of frozen nodes.  Conditions and projections are callables over Arrow batches, so that this wing
knows nothing of SQL.  Every node has a `schema`; rows are bags (duplicates count), and at every instant T a node
stands for the relation that the same node without windows would give over what each window holds at T.
Source: negative tuples, section 2.1 (Definition 1) and section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from nile.aggregates.catalogue import CATALOGUE, COLLECTED, RUNNING
from nile.aggregates.results import result_type
from nile.exact.plan.constraints import Promise
from nile.exact.plan.reach import Reach
from nile.exact.plan.streams import Every, Hop, OnClose, Sample, ToStream, Windowed
from nile.exact.plan.windows import Range, Rows, Slide, Unbounded, Window
from nile.exact.state.arrow import Array, pa
from nile.summaries.errors import UnknownColumn

if TYPE_CHECKING:
    import pyarrow

__all__ = [
    "COLLECTED",
    "RUNNING",
    "SIGN",
    "Aggregate",
    "Changing",
    "Distinct",
    "Every",
    "Expand",
    "First",
    "GraphJoin",
    "Group",
    "Hop",
    "Intersect",
    "Join",
    "Make",
    "Minus",
    "OnClose",
    "Opened",
    "Outer",
    "Plan",
    "Project",
    "Range",
    "Reach",
    "Rows",
    "Sample",
    "Scan",
    "Select",
    "Slide",
    "Stored",
    "Test",
    "ToStream",
    "Unbounded",
    "Union",
    "Whole",
    "Window",
    "Windowed",
    "inputs_of",
    "walk",
]

SIGN = "\0sign"
"""The column that says of a relation that changes whether a row comes (1) or goes (-1)."""

Test = Callable[["pyarrow.RecordBatch"], "pyarrow.BooleanArray"]
Make = Callable[["pyarrow.RecordBatch"], "pyarrow.RecordBatch"]
MakeOf = Callable[["pyarrow.RecordBatch", Array], "pyarrow.RecordBatch"]
Order = Callable[["pyarrow.RecordBatch"], Array]


@dataclass(frozen=True, slots=True)
class Scan:
    """A stream in a window.  position: its place in the statement, which orders tuples of one instant.  Pushed rows
    need the columns of `schema`; others are not kept.
    """

    name: str
    schema: pyarrow.Schema
    window: Window
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """A stored relation: its rows are valid at every instant."""

    name: str
    table: pyarrow.Table

    @property
    def schema(self) -> pyarrow.Schema:
        return self.table.schema


@dataclass(frozen=True, slots=True)
class Changing:
    """A changing relation: pushed rows are added or removed, as the last column, `SIGN` (int8), says: 1 or -1.

    An instant is complete only once the relation has passed it too.  Only existing rows can be removed.
    """

    name: str
    schema: pyarrow.Schema


@dataclass(frozen=True, slots=True)
class Select:
    """The rows for which `test` is true; null does not select."""

    input: Plan
    test: Test

    @property
    def schema(self) -> pyarrow.Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True)
class Project:
    """`make` of the rows, one for one and in order; duplicates stay.  reads: the columns it looks at, None: any.

    picks: where its columns are among those of the input, if it only passes columns on; None: there is more to it.
    """

    input: Plan
    make: Make
    schema: pyarrow.Schema
    reads: frozenset[str] | None = None
    picks: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Join:
    """Pairs of a left and a right row of equal columns `on` ((left, right), ...) for which `test` is true.

    A pair holds while both its sides do.  Null keys never join; NaN equals NaN and -0.0 is 0.0.  Columns: the left's,
    then the right's, of different names.  Without `on` and `test` every pair.  promises: constraints of two streams,
    by which the join may forget tuples; only where no pair has to go again.
    """

    left: Plan
    right: Plan
    on: tuple[tuple[str, str], ...] = ()
    test: Test | None = None
    promises: tuple[Promise, ...] = ()

    @property
    def schema(self) -> pyarrow.Schema:
        return pa.schema([*self.left.schema, *self.right.schema])


@dataclass(frozen=True, slots=True)
class GraphJoin:
    """Combinations of one tuple of each input under windows between pairs of them.

    inputs: chains of Select and Project over a Scan (whose own window is not used); on: one column of each input,
    all equal, or None; constraints: (i, j, w): at T a combination holds from its last tuple on while the times of both
    its i-th and its j-th tuple lie in [T - w, T].  directed: along the path of the constraints the times also do not
    fall, or do not rise.  test: over all columns, the inputs' one after the other.  algorithm: which W-join makes it.
    """

    inputs: tuple[Plan, ...]
    on: tuple[str, ...] | None
    constraints: tuple[tuple[int, int, int], ...]
    directed: bool = False
    test: Test | None = None
    algorithm: str = "chain"

    @property
    def schema(self) -> pyarrow.Schema:
        return pa.schema([field for each in self.inputs for field in each.schema])


@dataclass(frozen=True, slots=True)
class Outer:
    """A join that keeps, or keeps only, rows without a partner; `on` and `test` as of a Join.

    kind: left, right, full: pairs, and the rows of that side (of both) that have none, with nulls; semi, anti: rows of
    the left that have one, or none; mark: all of them, and whether they have one, in a column called `mark`.
    """

    left: Plan
    right: Plan
    kind: Literal["left", "right", "full", "semi", "anti", "mark"]
    on: tuple[tuple[str, str], ...] = ()
    test: Test | None = None
    mark: str = ""

    @property
    def schema(self) -> pyarrow.Schema:
        if self.kind in ("semi", "anti"):
            return self.left.schema
        if self.kind == "mark":
            return self.left.schema.append(pa.field(self.mark, pa.bool_()))
        return pa.schema([field.with_nullable(True) for field in (*self.left.schema, *self.right.schema)])


@dataclass(frozen=True, slots=True)
class Distinct:
    """Each distinct row once; nulls are equal."""

    input: Plan

    @property
    def schema(self) -> pyarrow.Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True)
class Expand:
    """Each row, and beside them each distinct combination of the columns of one of `sets`, of every set, once.

    A row of a set has nulls in the columns of the others; one of the input has nulls in `apart`, the columns that are
    of sets alone, and true in the last column, `ROW`, where those of sets have null.  So a group-by over them has
    aggregates of all rows and of distinct values at once, since aggregates ignore nulls.
    """

    ROW: ClassVar = "\0row"

    input: Plan
    sets: tuple[tuple[str, ...], ...]
    apart: tuple[str, ...]

    @property
    def schema(self) -> pyarrow.Schema:
        return self.input.schema.append(pa.field(self.ROW, pa.bool_()))


@dataclass(frozen=True, slots=True)
class _OfBoth:
    """A bag made of two.  Columns are matched by place, names are the left's; all=False: each row at most once."""

    left: Plan
    right: Plan
    all: bool

    @property
    def schema(self) -> pyarrow.Schema:
        return self.left.schema


@dataclass(frozen=True, slots=True)
class Union(_OfBoth):
    """The rows of both; all=False: each distinct one once."""


@dataclass(frozen=True, slots=True)
class Intersect(_OfBoth):
    """Rows in both inputs; all=True: min(l, r) times, else once."""


@dataclass(frozen=True, slots=True)
class Minus(_OfBoth):
    """Rows of the left without the right's; all=True: max(0, l - r) times, else once where r = 0, as SQL's EXCEPT.

    Negative tuples, section 4.3 (W-MINUS, then W-DISTINCT), would keep a row with l > r > 0.
    """


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A function of a group's rows, one of `RUNNING`; nulls are ignored.  column None: count(*); share: of a quantile.

    count: int64.  sum: int64 of whole numbers and truth values (SumOverflow beyond it), else double, correctly
    rounded from an exact sum.  avg, variances and roots, median, quantile_cont: double, and quantiles keep the type
    of times.  min, max, quantile_disc: the column's type, NaN above all numbers.  Of `COLLECTED`: order, columns with
    (descending, nulls last); where: a column that says which rows count; separator, distinct: of texts and lists.
    """

    name: str
    function: str
    column: str | None = None
    share: float | None = None
    order: tuple[tuple[str, bool, bool], ...] = ()
    where: str | None = None
    separator: str = ""
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """One row for each group: the columns `by`, then the aggregates.  by=(): one row always, as in SQL."""

    input: Plan
    by: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]

    @property
    def schema(self) -> pyarrow.Schema:
        fields = [_column(self.input.schema, name) for name in self.by]
        results = [pa.field(each.name, self._type(each)) for each in self.aggregates]
        return pa.schema(fields + results)

    def _type(self, aggregate: Aggregate) -> pyarrow.DataType:
        given = None if aggregate.column is None else _column(self.input.schema, aggregate.column).type
        return result_type(CATALOGUE[aggregate.function], given)


@dataclass(frozen=True, slots=True)
class Whole:
    """Each row with what the rows of its partition say of it, such as its rank.

    keys: of rows the columns (kinds) that say which partition each is in, `by` of them, then its order there (order:
    descending, nulls last, of each).  make: of rows, those of a partition in order or as they came, and the number of
    each one's partition (int64 [n]) the same rows with the values behind.  ranks: the values, where all are ranks.
    """

    input: Plan
    by: int
    order: tuple[tuple[bool, bool], ...]
    keys: Make
    kinds: pyarrow.Schema
    make: MakeOf
    schema: pyarrow.Schema
    reach: Reach = field(default_factory=Reach)
    ranks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Opened:
    """Tuples of a stream, which only come, each with when its session began, as the last column (timestamp[us]).

    keys: of tuples the columns (kinds) that say whose session it is; gap: ns without a tuple after which one has ended.
    """

    input: Plan
    keys: Make
    kinds: pyarrow.Schema
    gap: int
    schema: pyarrow.Schema


@dataclass(frozen=True, slots=True)
class First:
    """The first `count` rows (None: all) after `offset` in an order; of equal ones those that came first.

    order: of rows the places of the first, the second ... int64 [n]; rows that are equal in order stay as they are.
    """

    input: Plan
    order: Order
    count: int | None
    offset: int = 0

    @property
    def schema(self) -> pyarrow.Schema:
        return self.input.schema


_Unary = (
    Opened | Select | Project | Distinct | Expand | Group | Whole | First | ToStream | Windowed | Hop | OnClose | Every
)
Plan = Scan | Stored | Changing | Join | GraphJoin | Outer | Union | Intersect | Minus | Sample | _Unary


def inputs_of(plan: Plan) -> tuple[Plan, ...]:
    """The plans that a node reads."""
    match plan:
        case GraphJoin():
            return plan.inputs
        case Join() | Outer() | Union() | Intersect() | Minus():
            return (plan.left, plan.right)
        case Scan() | Stored() | Changing():
            return ()
        case _:
            return (plan.input,)


def walk(plan: Plan) -> Iterator[Plan]:
    """The node and all below it, the node first, inputs from left to right."""
    yield plan
    for each in inputs_of(plan):
        yield from walk(each)


def _column(schema: pyarrow.Schema, name: str) -> pyarrow.Field:
    at = schema.get_all_field_indices(name)
    if len(at) != 1:
        raise UnknownColumn(
            f"plan: needed one column {name!r}; got {len(at)} of that name among {', '.join(schema.names)}; take one"
        )
    return schema.field(at[0])
