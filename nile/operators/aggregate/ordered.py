"""Least, greatest and middle values that are no numbers, or that doubles do not hold: texts, dates, times, booleans.

An operator is given places among the distinct values in their stead, and the place that it tells stands for a value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.aggregates.catalogue import CATALOGUE
from nile.operators.aggregate.estimates import Number
from nile.summaries.heavy import pa, pc

__all__ = ["Ordered", "in_order", "is_told_as_is"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Ordered:
    """What an aggregate tells.  kind: the type of its values; values: [k], of which it tells places, None: it tells
    values.
    """

    kind: pa.DataType
    values: pa.Array | None = None

    def told(self, number: Number) -> Number:
        """The value that a number stands for, which has no interval among numbers."""
        if number.value is None or self.values is None:
            return number
        return Number(self.values[int(number.value)].as_py(), None)


def in_order(values: pa.Array, function: str) -> tuple[Array, Ordered] | None:
    """(int64 [n], what they stand for) of values that have an order and that doubles do not hold; None of numbers that
    they do, and for functions that look at no order.  Null is 0.  O(n + k log k) for k distinct values.
    """
    if not is_told_as_is(values, function):
        return None
    coded = values.dictionary_encode()
    order = pc.sort_indices(coded.dictionary).to_numpy()
    place = np.empty(order.shape[0], np.int64)
    place[order] = np.arange(order.shape[0])
    at = coded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    places = place[at] if order.shape[0] else np.zeros(len(values), np.int64)
    return places, Ordered(values.type, coded.dictionary.take(pa.array(order)))


def is_told_as_is(values: pa.Array, function: str) -> bool:
    """Whether a function tells one of these values that doubles do not hold."""
    types = pa.types
    if CATALOGUE[function].takes != "ordered" or types.is_floating(values.type) or types.is_null(values.type):
        return False
    return not types.is_integer(values.type) or _is_beyond_doubles(values)


def _is_beyond_doubles(values: pa.Array) -> bool:
    """Whether a double rounds one of these whole numbers."""
    if values.type.bit_width < 64 or not len(values):
        return False
    least, most = pc.min_max(values).as_py().values()
    return least is not None and max(-least, most) > 1 << 53
