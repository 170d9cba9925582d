"""What a condition is made of: Nile's own few node classes.

Everything downstream (types, evaluation, Spark text) knows these nodes and nothing else, so a
construct that is not here cannot reach data, files or code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Protocol

Kind = Literal[
    "boolean", "integer", "number", "text", "timestamp", "date", "interval", "null", "other", "unknown",
    "boolean[]", "integer[]", "number[]", "text[]", "timestamp[]", "date[]", "null[]",
]  # fmt: skip
"""What a value is. `number` is a double; decimals and unsigned 64-bit columns are read as doubles.
`unknown` is a column before its schema is known; `other` is a column that only IS NULL may look at; those with
brackets are lists of values, null[] of nothing but NULLs."""

Comparison = Literal["=", "<>", "<", "<=", ">", ">="]
MIRRORED: dict[Comparison, Comparison] = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The same comparison with its sides exchanged."""
Operator = Literal["+", "-", "*", "/", "%"]
Function = str
"""One of `SPECIAL`, or of the table of plain functions."""
SPECIAL = (
    "abs",
    "coalesce",
    "concat",
    "substring",
    "round",
    "floor",
    "ceil",
    "sqrt",
    "nullif",
    "greatest",
    "least",
    "year",
    "month",
    "day",
    "hour",
    "minute",
    "second",
    "date_trunc",
)
"""Functions with rules of their own: concat is ||, null if any part is; substring's numbers, round's digits and
date_trunc's unit are constants."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column by its exact name; `native` if Spark reads it as BIGINT or DOUBLE and need not widen it.

    unsigned: of whole numbers of 64 bits without a sign, which are numbers, but compared and cast as what they are.
    """

    name: str
    kind: Kind = "unknown"
    native: bool = False
    unsigned: bool = False


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal. Timestamps and dates are microseconds since 1970, intervals microseconds."""

    value: bool | int | float | str | None
    kind: Kind


@dataclass(frozen=True, slots=True)
class Compare:
    """Two values compared. NaN equals NaN and is greater than every other number."""

    operator: Comparison
    left: Node
    right: Node
    kind: Kind = "boolean"


@dataclass(frozen=True, slots=True)
class Between:
    """low <= item AND item <= high."""

    item: Node
    low: Node
    high: Node
    kind: Kind = "boolean"


@dataclass(frozen=True, slots=True)
class Logic:
    """AND or OR over two or more conditions."""

    operator: Literal["AND", "OR"]
    items: tuple[Node, ...]
    kind: Kind = "boolean"


@dataclass(frozen=True, slots=True)
class Not:
    """NOT."""

    item: Node
    kind: Kind = "boolean"


@dataclass(frozen=True, slots=True)
class IsNull:
    """IS NULL: never null itself."""

    item: Node
    kind: Kind = "boolean"


@dataclass(frozen=True, slots=True)
class In:
    """item = one of the choices; null if none is equal and one is null."""

    item: Node
    choices: tuple[Node, ...]
    kind: Kind = "boolean"


@dataclass(frozen=True, slots=True)
class Like:
    """Text against a pattern: a tuple of literal pieces, "%" (ANY_TEXT) and "_" (ANY_CHARACTER)."""

    item: Node
    pattern: tuple[Piece, ...]
    ignore_case: bool
    kind: Kind = "boolean"


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a LIKE pattern: text to match, or a wildcard when `text` is None."""

    text: str | None
    any_length: bool = False


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Two numbers, or a time and an interval. Overflow and division by zero give null."""

    operator: Operator
    left: Node
    right: Node
    kind: Kind = "unknown"


@dataclass(frozen=True, slots=True)
class Call:
    """One of the few functions."""

    function: Function
    arguments: tuple[Node, ...]
    kind: Kind = "unknown"


@dataclass(frozen=True, slots=True)
class Cast:
    """A conversion that gives null where it is impossible. `bits` bounds whole numbers."""

    item: Node
    kind: Kind
    bits: int = 64


@dataclass(frozen=True, slots=True)
class Case:
    """CASE WHEN condition THEN value ... ELSE default END."""

    branches: tuple[tuple[Node, Node], ...]
    default: Node
    kind: Kind = "unknown"


class Rows(Protocol):
    """Stored rows that are found by a key (`nile.execution.approximate.stored`)."""

    @property
    def name(self) -> str:
        """What messages and plans call them."""

    def values(self, keys: Sequence[Any], column: str | None, rows: int) -> Any:
        """A column of the row of each key, null where there is none; None: whether there is one.

        keys: of each part of the key an Arrow array [rows].
        """


@dataclass(frozen=True, slots=True)
class Lookup:
    """A column of the stored row whose key a row has, null where there is none; column None: whether there is one.

    Made of joins with stored relations, by their unique keys; no text says it.  unsigned: as of a Column.
    """

    keys: tuple[Node, ...]
    rows: Rows
    column: str | None
    kind: Kind
    unsigned: bool = False


Node = (
    Column | Constant | Compare | Between | Logic | Not | IsNull | In | Like | Arithmetic | Call | Cast | Case | Lookup
)


def parts_of(node: Node) -> Iterator[Node]:
    """The node and all nodes below it, in order of appearance."""
    waiting: list[object] = [node]
    while waiting:
        current = waiting.pop()
        if isinstance(current, tuple):
            waiting.extend(reversed(current))
        elif isinstance(current, Node):
            yield current
            waiting.extend(reversed([getattr(current, item.name) for item in fields(current)]))


def is_beyond(node: Node) -> bool:
    """Whether it is a literal of a whole number beyond 64 bits with a sign."""
    return isinstance(node, Constant) and node.kind == "number" and type(node.value) is int


def is_unsigned(node: Node) -> bool:
    """Whether it holds whole numbers of 64 bits without a sign, as they are stored."""
    return isinstance(node, Column | Lookup) and node.unsigned


def are_whole(nodes: Iterable[Node]) -> bool:
    """Whether nodes are to be compared as whole numbers though some are numbers: columns of 64 bits without a sign."""
    some = False
    for node in nodes:
        unsigned = is_unsigned(node)
        literal = isinstance(node, Constant) and (node.value is None or (type(node.value) is int and node.value >= 0))
        if not (unsigned or node.kind == "integer" or (literal and node.kind in ("null", "number"))):
            return False
        some = some or unsigned
    return some


def whole_numbers(nodes: Sequence[Node]) -> list[int]:
    """What constants that are whole numbers hold."""
    return [node.value for node in nodes if isinstance(node, Constant) and isinstance(node.value, int)]


def children_of(node: Node) -> Iterator[Node]:
    """The nodes right below, in order of appearance."""
    for item in fields(node):
        waiting: list[object] = [getattr(node, item.name)]
        while waiting:
            current = waiting.pop()
            if isinstance(current, tuple):
                waiting.extend(reversed(current))
            elif isinstance(current, Node):
                yield current


def rebuild(node: Node, change: Callable[[Node], Node]) -> Node:
    """The node with every node right below it changed; itself where none is."""
    changed: dict[str, Any] = {}
    for item in fields(node):
        old = getattr(node, item.name)
        if isinstance(old, tuple | Node):
            new = _rebuilt(old, change)
            if new is not old:
                changed[item.name] = new
    return replace(node, **changed) if changed else node


def _rebuilt(value: object, change: Callable[[Node], Node]) -> object:
    if isinstance(value, tuple):
        parts = tuple(_rebuilt(part, change) for part in value)
        return value if all(new is old for new, old in zip(parts, value, strict=True)) else parts
    return change(value) if isinstance(value, Node) else value


def rename(node: Node, names: Callable[[Column], Node]) -> Node:
    """The tree with every column replaced."""
    return names(node) if isinstance(node, Column) else rebuild(node, lambda child: rename(child, names))


def conjuncts(node: Node | None) -> tuple[Node, ...]:
    """The conditions that a condition is an AND of; () for None."""
    if node is None:
        return ()
    if isinstance(node, Logic) and node.operator == "AND":
        return tuple(part for item in node.items for part in conjuncts(item))
    return (node,)


def comparisons_of(node: Node, column: str) -> Iterator[tuple[Comparison, Constant]]:
    """A conjunct as comparisons of a column (on the left) with constants; none where it is something else, or <>."""
    if isinstance(node, Compare) and node.operator != "<>":
        left, right = node.left, node.right
        if isinstance(left, Column) and left.name == column and isinstance(right, Constant):
            yield node.operator, right
        elif isinstance(right, Column) and right.name == column and isinstance(left, Constant):
            yield MIRRORED[node.operator], left
    elif (
        isinstance(node, Between)
        and isinstance(node.item, Column)
        and node.item.name == column
        and isinstance(node.low, Constant)
        and isinstance(node.high, Constant)
    ):
        yield ">=", node.low
        yield "<=", node.high


def conjunction(conditions: Sequence[Node]) -> Node | None:
    """The AND of conditions; None for none."""
    if len(conditions) < 2:
        return conditions[0] if conditions else None
    return Logic("AND", tuple(conditions))


def columns_of(node: Node) -> tuple[str, ...]:
    """The names of the columns below `node`, each once, in order of appearance."""
    return tuple(dict.fromkeys(part.name for part in parts_of(node) if isinstance(part, Column)))
