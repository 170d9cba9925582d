"""What is the same for every row, computed once."""

from __future__ import annotations

import math
from datetime import date, datetime

from nile.expressions import tree as nodes
from nile.expressions.evaluate import evaluate_value
from nile.expressions.tree import Column, Node, children_of, rebuild
from nile.summaries.heavy import pa

__all__ = ["fold"]

_ALIKE = ("coalesce", "greatest", "least", "nullif")
_EPOCH = datetime(1970, 1, 1)
_KINDS: tuple[nodes.Kind, ...] = ("boolean", "integer", "number", "text", "timestamp", "date")


def fold(node: Node) -> Node:
    """A bound tree with constant parts computed, and without TRUE in ANDs and FALSE in ORs.  O(nodes)."""
    if isinstance(node, Column | nodes.Constant):
        return node
    folded = _widened(rebuild(node, fold))
    if isinstance(folded, nodes.Logic):
        folded = _logic(folded)
    if isinstance(folded, nodes.Not) and isinstance(folded.item, nodes.Not):
        return folded.item.item
    if isinstance(folded, Column | nodes.Constant) or folded.kind not in _KINDS:
        return folded
    if all(isinstance(child, nodes.Constant) for child in children_of(folded)):
        return _computed(folded)
    return folded


def _widened(node: Node) -> Node:
    """A whole number that was computed beside numbers is one of them, as one that was written there."""
    compared = list(children_of(node)) if isinstance(node, nodes.Compare | nodes.Between | nodes.In) else []
    alike = any(child.kind == "number" for child in compared) and not nodes.are_whole(compared)
    if not alike and not (isinstance(node, nodes.Arithmetic | nodes.Call | nodes.Case) and node.kind == "number"):
        return node
    if isinstance(node, nodes.Call) and node.function not in _ALIKE:
        return node

    def wide(child: Node) -> Node:
        if isinstance(child, nodes.Constant) and child.kind == "integer":
            return nodes.Constant(None if child.value is None else float(child.value), "number")
        return child

    return rebuild(node, wide)


def _logic(node: nodes.Logic) -> Node:
    """AND without what is TRUE, FALSE if any is; OR the other way round."""
    decides = node.operator == "OR"
    if any(isinstance(item, nodes.Constant) and item.value is decides for item in node.items):
        return nodes.Constant(decides, "boolean")
    items = tuple(item for item in node.items if not (isinstance(item, nodes.Constant) and item.value is (not decides)))
    if not items:
        return nodes.Constant(not decides, "boolean")
    return items[0] if len(items) == 1 else nodes.Logic(node.operator, items)


def _computed(node: Node) -> Node:
    """A tree without columns as a constant; itself where the value is no literal."""
    row = pa.RecordBatch.from_arrays([pa.nulls(1)], names=[""])
    value = evaluate_value(node, row)[0].as_py()
    if isinstance(value, float) and math.isnan(value):
        return node  # equal plans must be equal, and NaN is not
    if isinstance(value, datetime):
        past = value.replace(tzinfo=None) - _EPOCH
        value = (past.days * 86_400 + past.seconds) * 1_000_000 + past.microseconds
    elif isinstance(value, date):
        value = (value - _EPOCH.date()).days * 86_400_000_000
    if node.kind == "number" and value is not None:
        value = float(value)
    return nodes.Constant(value, node.kind)
