"""Functions of lists over a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nile.expressions.convert import cast_values, in_nanoseconds, to_number
from nile.expressions.lists.functions import LISTS
from nile.expressions.lists.values import Lists, element_kind, is_list
from nile.expressions.tree import Call, Constant, Node
from nile.summaries.heavy import pa, pc

__all__ = ["joined_lists", "list_value", "repeated"]

Array = Any
"""A pyarrow Array."""


def repeated(value: Any, rows: int) -> Array:
    """A scalar once for each row, of which there may be none."""
    return pa.repeat(value, rows) if rows else pa.array([], value.type)


def joined_lists(arrays: Sequence[Array]) -> Array:
    """Lists of a row one behind the other; null where one of them is."""
    made = LISTS["list_concat"].kernel(*_alike([Lists.of(each) for each in arrays]))
    known = np.all([each.is_valid().to_numpy(zero_copy_only=False) for each in arrays], axis=0)
    return pc.if_else(pa.array(known), made.array(), pa.scalar(None, made.array().type))


def list_value(node: Call, arrays: Sequence[Array], rows: int) -> Array:
    """A call over an array for each argument, all as long as the batch."""
    rule = LISTS[node.function]
    if not arrays:
        kind = {"number": pa.float64(), "text": pa.string(), "boolean": pa.bool_()}.get(element_kind(node.kind))
        kind = pa.timestamp("us") if element_kind(node.kind) in ("timestamp", "date") else kind or pa.int64()
        return repeated(pa.scalar([], pa.list_(kind)), rows)
    if node.function == "array_to_string":
        return _text(node, arrays)
    given: list[Any] = [
        Lists.of(array) if is_list(each.kind) else array for each, array in zip(node.arguments, arrays, strict=True)
    ]
    of_elements = [at for at, each in enumerate(node.arguments) if not _is_index(node, at, each)]
    for at, value in zip(of_elements, _alike([given[at] for at in of_elements]), strict=True):
        given[at] = value
    found = rule.kernel(*given)
    made = found.array() if isinstance(found, Lists) else found
    if rule.nulls:
        return made
    known = np.all([each.valid for each in given if isinstance(each, Lists)], axis=0)
    return made if known.all() else pc.if_else(pa.array(known), made, pa.scalar(None, made.type))


def _is_index(node: Call, at: int, argument: Node) -> bool:
    return node.function in ("list_slice", "list_extract") and at > 0 and not is_list(argument.kind)


def _alike(given: Sequence[Any]) -> list[Any]:
    """Lists and elements whose values are of one Arrow type."""
    types = [each.values.type if isinstance(each, Lists) else each.type for each in given]
    if pa.float64() in types:
        change = to_number
    elif pa.timestamp("ns") in types:
        change = in_nanoseconds
    else:
        return list(given)
    return [
        Lists(change(each.values), each.lengths, each.valid) if isinstance(each, Lists) else change(each)
        for each in given
    ]


def _text(node: Call, arrays: Sequence[Array]) -> Array:
    """array_to_string: numbers and times as CAST writes them."""
    item, separator = node.arguments
    assert isinstance(separator, Constant)
    lists = Lists.of(arrays[0])
    kind = element_kind(item.kind)
    values = lists.values if kind == "text" else cast_values(lists.values, kind, "text", 0)
    return LISTS[node.function].kernel(Lists(values, lists.lengths, lists.valid), str(separator.value))
