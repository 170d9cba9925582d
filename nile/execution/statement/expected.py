"""The expected rows of each node of a plan, and the source of the estimate.  Nothing is read for it.

A source that knows its number of rows says it, otherwise a summary of the stream that has been built does; the same
summary says how many tuples have a value of its column, or one of a range.  All else goes by rules of thumb.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from nile.expressions.tree import MIRRORED, Between, Column, Compare, Constant, In, Like, Logic, Node, Not
from nile.sql import plan as ops
from nile.sql.plan import Plan, Stream, inputs_of
from nile.summaries.errors import NileError
from nile.summaries.hashing import hash_keys
from nile.summaries.heavy import pa
from nile.summaries.ordered import order_codes

if TYPE_CHECKING:
    from nile.pyramid.grid.manager import SummaryManager

__all__ = ["Counts", "Expected", "expected"]

_KEEPS = {"=": 0.1, "<>": 0.9}
_RANGE = 1 / 3
_DISTINCT_SHARE = 0.1
_FIRST, _LAST = 1, (1 << 64) - 1
"""Numbers of values; 0 is that of null."""
_WEIGHT = {"source": 0, "summary": 1, "rule": 2}

Basis = Literal["source", "summary", "rule"]


class Counts(Protocol):
    """What is asked of a database."""

    def rows(self, name: str) -> int | None:
        """How many rows a source has, where it says so without reading."""

    def where(self, name: str) -> Node | None:
        """The condition that a stream or relation was registered with."""

    def built(self, name: str) -> Mapping[str, SummaryManager]:
        """Summaries of a stream that have been built and are still there, by column."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A number of rows and the weakest thing it rests on."""

    rows: float
    by: Basis

    def __str__(self) -> str:
        if self.by == "source":
            return f"{self.rows:,.0f} by its source" if self.rows == int(self.rows) else f"{self.rows:,.6g}"
        number = f"{self.rows:,.0f}" if self.rows >= 10 or self.rows == int(self.rows) else f"{self.rows:.2g}"
        return f"about {number} by {self.by}"

    def times(self, share: float, by: Basis = "rule") -> Expected:
        """That share of it."""
        return Expected(self.rows * share, _weaker(self.by, by))


def _weaker(*parts: Basis) -> Basis:
    return max(parts, key=lambda each: _WEIGHT[each])


def expected(counts: Counts, plan: Plan) -> Expected | None:
    """Rows that a node gives; None where nothing says how many its sources have.

    By rule: = keeps a tenth, <> nine tenths, other comparisons a third; keys of a join and groups are a tenth as many
    as rows (at least one); windows are taken to hold everything.
    """
    if isinstance(plan, Stream | ops.Relation):
        return _leaf(counts, plan)
    inputs = [expected(counts, each) for each in inputs_of(plan)]
    below = [each for each in inputs if each is not None]
    if isinstance(plan, ops.Limit) and plan.count is not None:
        return Expected(min([plan.count, *(each.rows for each in below)]), "rule")
    return _above(plan, below) if len(below) == len(inputs) else None


def _above(plan: Plan, below: list[Expected]) -> Expected:
    """Rows that a node gives of those that its inputs give."""
    (one, *_) = below
    match plan:
        case ops.Join():
            return _join(plan, below)
        case ops.Outer():
            return _outer(plan, *below)
        case ops.SetOperation():
            return _set(plan, *below)
        case ops.Filter():
            return one.times(_share(plan.condition))
        case ops.Group() if not plan.by:
            return Expected(1.0, "rule")
        case ops.Group() | ops.Distinct():
            return Expected(max(1.0, one.rows * _DISTINCT_SHARE), "rule")
        case _:
            return one


def _leaf(counts: Counts, plan: Stream | ops.Relation) -> Expected | None:
    found = _kept(counts, plan)
    if found is None or plan.where is None:
        return found
    share, by = _leaf_share(counts, plan, plan.where)
    return found.times(share, by)


def _kept(counts: Counts, plan: Stream | ops.Relation) -> Expected | None:
    """What a stream or relation has under its own condition."""
    built = counts.built(plan.name)
    rows, where = counts.rows(plan.name), counts.where(plan.name)
    if rows is not None and where is None:
        return Expected(float(rows), "source")
    if built:  # a summary takes the tuples that the condition lets through
        return Expected(float(max(one.store.tuples for one in built.values())), "summary")
    return None if rows is None or where is None else Expected(rows * _share(where), "rule")


def _leaf_share(counts: Counts, plan: Stream | ops.Relation, node: Node) -> tuple[float, Basis]:
    """What share of a leaf's rows a condition keeps."""
    if isinstance(node, Logic) and node.operator == "AND":
        ranged, rest = _ranges(counts, plan, node.items)
        parts = [*ranged, *(_leaf_share(counts, plan, item) for item in rest)]
        share = 1.0
        for one, _ in parts:
            share *= one
        return share, _weaker(*(by for _, by in parts))
    if isinstance(node, Compare) and node.operator == "=":
        column, value = (node.left, node.right) if isinstance(node.left, Column) else (node.right, node.left)
        if isinstance(column, Column) and isinstance(value, Constant):
            summary = counts.built(plan.name).get(column.name.removeprefix(f"{plan.alias}."))
            share_of = None if summary is None else _estimated(summary, value.value)
            if share_of is not None:
                return share_of, "summary"
    (ranged, _) = _ranges(counts, plan, (node,))
    return ranged[0] if ranged else (_share(node), "rule")


def _ranges(
    counts: Counts, plan: Stream | ops.Relation, nodes: Sequence[Node]
) -> tuple[list[tuple[float, Basis]], list[Node]]:
    """What share the conditions on the range of a summarised column keep, one a column; and the other conditions."""
    built = counts.built(plan.name)
    ends: dict[str, list[int]] = {}
    rest = []
    for node in nodes:
        told = _range(node)
        column = "" if told is None else told[0].removeprefix(f"{plan.alias}.")
        if told is None or column not in built or built[column].within(_LAST, _FIRST) is None:
            rest.append(node)
            continue
        codes = [None if end is None else _code(built[column], end) for end in told[1:3]]
        if any(code is None and end is not None for code, end in zip(codes, told[1:3], strict=True)):
            rest.append(node)
            continue
        low, high = (None if code is None else code + step for code, step in zip(codes, told[3], strict=True))
        held = ends.setdefault(column, [_FIRST, _LAST])
        held[0], held[1] = max(held[0], _FIRST if low is None else low), min(held[1], _LAST if high is None else high)
    shares: list[tuple[float, Basis]] = []
    for column, (low, high) in ends.items():
        tuples = built[column].store.tuples - built[column].forgotten
        found = built[column].within(low, high)
        shares.append((min(1.0, float(found.value) / tuples) if found and tuples else 0.0, "summary"))
    return shares, rest


def _range(node: Node) -> tuple[str, Any, Any, tuple[int, int]] | None:
    """(column, low, high, how far the numbers of these are moved for ends that are not included); None: no range."""
    if isinstance(node, Between):
        if isinstance(node.item, Column) and isinstance(node.low, Constant) and isinstance(node.high, Constant):
            return node.item.name, node.low.value, node.high.value, (0, 0)
        return None
    if not isinstance(node, Compare) or node.operator in ("=", "<>"):
        return None
    operator = node.operator
    column, value = node.left, node.right
    if isinstance(value, Column):
        operator, column, value = MIRRORED[operator], value, column
    if not (isinstance(column, Column) and isinstance(value, Constant)) or value.value is None:
        return None
    if operator in (">", ">="):
        return column.name, value.value, None, (int(operator == ">"), 0)
    return column.name, None, value.value, (0, -int(operator == "<"))


def _code(summary: SummaryManager, value: Any) -> int | None:
    """The number of a value among those of a summary; None where it is none of their kind."""
    if summary.keys.kind is None:
        return None
    try:
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        plain = pa.types.is_integer(summary.keys.kind) or pa.types.is_floating(summary.keys.kind)
        if numeric and plain:
            return int(order_codes(pa.array([float(value)]))[0])
        return int(order_codes(pa.array([value]).cast(summary.keys.kind))[0])
    except (pa.ArrowException, NileError, OverflowError):
        return None


def _estimated(summary: SummaryManager, value: Any) -> float | None:
    """The share of a summary's tuples that have a value; None where the value is none of its kind."""
    held = summary.store.tuples - summary.forgotten
    if held <= 0 or summary.keys.kind is None or value is None:
        return None
    try:
        hashes = hash_keys(pa.array([value]).cast(summary.keys.kind), summary.keys.hasher)
    except (pa.ArrowException, NileError):
        return None
    return min(1.0, float(summary.estimate(hashes).value[0]) / held)  # type: ignore[index]


def _set(plan: ops.SetOperation, left: Expected, right: Expected) -> Expected:
    if plan.kind == "union" and plan.all:
        return Expected(left.rows + right.rows, _weaker(left.by, right.by))
    rows = {"union": left.rows + right.rows, "intersect": min(left.rows, right.rows)}.get(plan.kind, left.rows)
    return Expected(rows, "rule")


def _join(plan: ops.Join, below: list[Expected]) -> Expected:
    rows = math.prod(each.rows for each in below)
    largest = max(each.rows for each in below)
    for _ in range(min(len(plan.equal), len(plan.inputs) - 1)):
        rows /= max(1.0, largest * _DISTINCT_SHARE)
    return Expected(rows if plan.condition is None else rows * _share(plan.condition), "rule")


def _outer(plan: ops.Outer, left: Expected, right: Expected) -> Expected:
    """Of a semi or anti join half the rows; of another the pairs, and no fewer than the rows that it keeps."""
    if plan.kind == "mark":
        return left
    if plan.kind in ("semi", "anti"):
        return left.times(0.5)
    pairs = _join(ops.Join((plan.left, plan.right), plan.equal, plan.condition), [left, right]).rows
    kept = {"left": left.rows, "right": right.rows}.get(plan.kind, max(left.rows, right.rows))
    return Expected(max(pairs, kept), "rule")


def _share(node: Node) -> float:
    """What share of rows a condition keeps, by rule of thumb."""
    match node:
        case Compare():
            return _KEEPS.get(node.operator, _RANGE)
        case Logic():
            shares = [_share(item) for item in node.items]
            kept = 1.0
            for share in shares:
                kept *= share if node.operator == "AND" else 1.0 - share
            return kept if node.operator == "AND" else 1.0 - kept
        case Not():
            return 1.0 - _share(node.item)
        case In():
            return min(1.0, 0.1 * len(node.choices))
        case Between() | Like() | Column():
            return _RANGE
        case _:
            return 1.0
