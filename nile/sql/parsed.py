"""A query as written: names not resolved yet, every part with its position in the text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from nile.expressions.tree import Comparison, Node
from nile.mining.call import Call
from nile.sql.columns import SortKey
from nile.sql.over import Frame
from nile.sql.reading.inline_relations import Listed
from nile.sql.reading.own_windows import OwnWindow, SampleCall

__all__ = [
    "GROUPING",
    "Aggregate",
    "Block",
    "Derived",
    "Expression",
    "GroupingSets",
    "HopCall",
    "JoinKind",
    "Joined",
    "Nested",
    "Operation",
    "Ordered",
    "OverCall",
    "Reference",
    "SelectItem",
    "Source",
    "Star",
    "Streamed",
    "Table",
    "Unnested",
    "Written",
]


NO_SOURCE = "_row"
"""What a SELECT without FROM is of."""
GROUPING = "grouping"
"""Not an aggregate, but written like one: whether a key is of another grouping set."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A column as written."""

    qualifier: str | None
    name: str
    start: int


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate as written; its argument's columns are references of the expression around it."""

    function: str
    argument: Node | None
    distinct: bool
    fraction: float | None
    start: int
    order: tuple[SortKey, ...] = ()
    where: Node | None = None
    separator: str | None = None


@dataclass(frozen=True, slots=True)
class OverCall:
    """A window function as written: its columns are references of the expression around it.

    order: (key, descending, nulls last).
    """

    function: str
    arguments: tuple[Node, ...]
    by: tuple[Node, ...]
    order: tuple[tuple[Node, bool, bool], ...]
    frame: Frame | None
    fraction: float | None
    start: int
    without_nulls: bool = False


@dataclass(frozen=True, slots=True)
class Nested:
    """A query inside an expression.

    kind: exists (EXISTS (...)), in (item operator ANY (...), with = IN) or scalar, one value.  item: its columns are
    references of the expression around it.
    """

    kind: Literal["exists", "in", "scalar"]
    query: Written
    start: int
    item: Node | None = None
    operator: Comparison = "="


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression: its columns are called "#i", the i-th reference, and "@i", the i-th aggregate.

    Queries in it are called "?i", window functions "%i", an element of the i-th (list, start) that is unnested "^i".
    places: the offset of each node of the tree, by id.
    """

    node: Node
    references: tuple[Reference, ...]
    aggregates: tuple[Aggregate, ...]
    start: int
    text: str
    nested: tuple[Nested, ...] = ()
    overs: tuple[OverCall, ...] = ()
    unnests: tuple[tuple[Node, int], ...] = ()
    places: Mapping[int, int] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Star:
    """* or qualifier.*

    without: EXCLUDE; replaced: REPLACE (value AS name); renamed: RENAME (old AS new).
    """

    qualifier: str | None
    start: int
    without: tuple[str, ...] = ()
    replaced: tuple[tuple[str, Expression], ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SelectItem:
    """An output column, or several."""

    value: Expression | Star
    alias: str | None


@dataclass(frozen=True, slots=True)
class Table:
    """A name in FROM.  own: its window in brackets; where: the condition in them; mined: the function around it.

    as_of: FOR SYSTEM_TIME AS OF a stream's time: as the relation was then.  listed: rows that are written down.
    """

    name: str
    alias: str | None
    start: int
    own: OwnWindow | None = None
    where: Expression | None = None
    hop: HopCall | None = None
    sample: SampleCall | None = None
    mined: Call | None = None
    as_of: Reference | None = None
    listed: Listed | None = None


@dataclass(frozen=True, slots=True)
class HopCall:
    """TUMBLE or HOP around a stream: the column of its times, and ns."""

    time: str
    size: int
    slide: int
    start: int


@dataclass(frozen=True, slots=True)
class Derived:
    """A query in FROM, or one that WITH names.  columns: what its first columns are called, where that is said."""

    query: Written
    alias: str
    start: int
    columns: tuple[str, ...] = ()
    own: OwnWindow | None = None
    sample: SampleCall | None = None


@dataclass(frozen=True, slots=True)
class Unnested:
    """unnest(list) in FROM, whose list may be of the sources before it."""

    value: Expression
    alias: str
    start: int
    columns: tuple[str, ...] = ()


Source = Table | Derived | Unnested


JoinKind = Literal["comma", "inner", "left", "right", "full", "semi", "anti"]


@dataclass(frozen=True, slots=True)
class Joined:
    """A source and how it hangs on those before it: ON a condition, USING columns, or neither (a comma)."""

    source: Source
    on: Expression | None = None
    using: tuple[Reference, ...] = ()
    kind: JoinKind = "comma"
    start: int = 0
    natural: bool = False


@dataclass(frozen=True, slots=True)
class Ordered:
    """An ORDER BY key; key None: ALL columns, from left to right."""

    key: Expression | None
    descending: bool
    nulls_last: bool

    @property
    def start(self) -> int:
        """Where its key begins."""
        return 0 if self.key is None else self.key.start


@dataclass(frozen=True, slots=True)
class GroupingSets:
    """GROUPING SETS, ROLLUP and CUBE, multiplied out: the keys of each grouping."""

    sets: tuple[tuple[Expression, ...], ...]


@dataclass(frozen=True, slots=True)
class Block:
    """SELECT ... FROM ...  group None: no GROUP BY; "all": GROUP BY ALL.

    absent: keys of other grouping sets, which are null in this one.
    """

    items: tuple[SelectItem, ...]
    sources: tuple[Joined, ...]
    start: int
    where: Expression | None = None
    group: tuple[Expression, ...] | Literal["all"] | GroupingSets | None = None
    absent: tuple[Expression, ...] = ()
    having: Expression | None = None
    qualify: Expression | None = None
    distinct: bool = False
    order: tuple[Ordered, ...] = ()
    limit: int | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Operation:
    """Two queries and UNION, INTERSECT or EXCEPT between them."""

    kind: Literal["union", "intersect", "except"]
    all: bool
    left: Written
    right: Written
    start: int
    by_name: bool = False
    order: tuple[Ordered, ...] = ()
    limit: int | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Streamed:
    """ISTREAM, DSTREAM or RSTREAM of a query."""

    kind: Literal["istream", "dstream", "rstream"]
    query: Written
    start: int
    order: tuple[Ordered, ...] = ()
    limit: int | None = None
    offset: int = 0


Written = Block | Operation | Streamed
