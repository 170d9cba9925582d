"""What a condition can come to when one column of a row is known and the others are not.

A standing selection is summarised by one column.  From its value alone a condition over several columns is
certainly true, certainly not, or open; so is one over that column only, which is never open.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from nile.expressions import tree as nodes
from nile.expressions.evaluate import evaluate_mask
from nile.expressions.tree import Column, Node, columns_of, parts_of
from nile.summaries.heavy import pa, pc

__all__ = ["Outcomes", "is_contradictory", "is_ordered", "outcomes"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Outcomes:
    """For each value of the known column: whether the condition can be true, false, null.  bool [k] each."""

    true: Array
    false: Array
    null: Array

    @property
    def is_certain(self) -> Array:
        """Where the condition is true, whatever the other columns hold: bool [k]."""
        certain: Array = self.true & ~self.false & ~self.null
        return certain


def outcomes(tree: Node, batch: pa.RecordBatch) -> Outcomes:
    """The outcomes of a bound tree for each row of `batch`, which has one column: the known one.

    Columns are taken as independent of each other, so that an outcome may be told as possible which no row
    has: never the other way round.  O(rows x nodes).
    """
    known = batch.schema.names
    if all(column in known for column in columns_of(tree)):
        value = evaluate_mask(tree, batch)
        null = value.is_null().to_numpy(zero_copy_only=False)
        true = pc.fill_null(value, False).to_numpy(zero_copy_only=False).astype(bool)
        return Outcomes(true, ~true & ~null, null)
    match tree:
        case nodes.Not():
            item = outcomes(tree.item, batch)
            return Outcomes(item.false, item.true, item.null)
        case nodes.Logic():
            combine = _both if tree.operator == "AND" else _either
            return reduce(combine, [outcomes(item, batch) for item in tree.items])
    anything = np.ones(batch.num_rows, bool)
    never = np.zeros(batch.num_rows, bool)
    return Outcomes(anything, anything, never if isinstance(tree, nodes.IsNull) else anything)


def _both(a: Outcomes, b: Outcomes) -> Outcomes:
    null = (a.null & (b.null | b.true)) | (a.true & b.null)
    return Outcomes(a.true & b.true, a.false | b.false, null)


def _either(a: Outcomes, b: Outcomes) -> Outcomes:
    null = (a.null & (b.null | b.false)) | (a.false & b.null)
    return Outcomes(a.true | b.true, a.false & b.false, null)


def is_ordered(tree: Node, column: str) -> bool:
    """Whether what `tree` says of `column` follows from its place in the order of values.

    That is so for comparisons with constants, BETWEEN, IN, IS NULL, LIKE 'prefix%', and AND, OR, NOT of them: their
    constants cut the values into intervals before any value is seen.  Anything else has to be put to each value.
    """
    match tree:
        case nodes.Not():
            return is_ordered(tree.item, column)
        case nodes.Logic():
            return all(is_ordered(item, column) for item in tree.items)
    if columns_of(tree) != (column,):
        return True  # with other columns it is open for every value: nothing is asked of this one
    match tree:
        case Column():
            return True
        case nodes.IsNull():
            return isinstance(tree.item, Column)
        case nodes.Compare():
            return {type(tree.left), type(tree.right)} == {Column, nodes.Constant}
        case nodes.Between():
            return isinstance(tree.item, Column) and all(isinstance(n, nodes.Constant) for n in (tree.low, tree.high))
        case nodes.In():
            return isinstance(tree.item, Column) and all(isinstance(n, nodes.Constant) for n in tree.choices)
        case nodes.Like():
            *first, last = tree.pattern or (None,)
            return (
                isinstance(tree.item, Column)
                and not tree.ignore_case
                and all(piece is not None and piece.text is not None for piece in first)
                and (last is None or last.text is not None or last.any_length)
            )
    return False


def is_contradictory(tree: Node, column: pa.Field) -> bool:
    """Whether no value of `column` can satisfy a bound tree, whatever the other columns hold.

    It is asked of values at and next to every constant: between those nothing changes, as long as what the tree
    says of the column follows from the order of values; else the answer is False.
    """
    if not is_ordered(tree, column.name):
        return False
    values = _beside(tree, column)
    if values is None:
        return False
    return not outcomes(tree, pa.RecordBatch.from_arrays([values], names=[column.name])).true.any()


def _beside(tree: Node, column: pa.Field) -> pa.Array | None:
    """Values of a column's type at and next to the constants of a tree, and null; None for types without order."""
    said = [part.value for part in parts_of(tree) if isinstance(part, nodes.Constant) and part.value is not None]
    kind = pa.types
    found: list[Any] = [None]
    if kind.is_boolean(column.type):
        found += [False, True]
    elif kind.is_string(column.type) or kind.is_large_string(column.type):
        texts = [value for value in said if isinstance(value, str)]
        texts += [
            part.pattern[0].text or "" for part in parts_of(tree) if isinstance(part, nodes.Like) and part.pattern
        ]
        found += ["", *texts, *(text + "\0" for text in texts)]
    elif kind.is_floating(column.type):
        numbers = [float(value) for value in said if isinstance(value, int | float)]
        steps = [math.nextafter(number, end) for number in numbers for end in (-math.inf, math.inf)]
        found += [0.0, math.nan, math.inf, -math.inf, *numbers, *steps]
    elif kind.is_signed_integer(column.type):
        most = 2 ** (column.type.bit_width - 1)
        finite = [value for value in said if isinstance(value, int | float) and math.isfinite(value)]
        near = [math.floor(value) + step for value in finite for step in (-1, 0, 1, 2)]
        found += [-most, 0, most - 1, *(value for value in near if -most <= value < most)]
    else:
        return None
    return pa.array(found, column.type)
