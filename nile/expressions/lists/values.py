"""Lists as flat values with a length each: what functions of lists compute on.

A list of a kind is a list of what its elements compute in (`convert`): 'integer[]' is list<int64>.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.expressions.tree import Kind
from nile.summaries.heavy import pa, pc

__all__ = ["LIST_KINDS", "Lists", "codes", "element_kind", "is_list", "list_of"]

Array = Any
"""A pyarrow Array."""
Numbers = np.ndarray[Any, Any]
LIST_KINDS: dict[Kind, Kind] = {
    "boolean": "boolean[]",
    "integer": "integer[]",
    "number": "number[]",
    "text": "text[]",
    "timestamp": "timestamp[]",
    "date": "date[]",
    "null": "null[]",
}
"""The kind of a list by that of its elements."""
_ELEMENTS: dict[Kind, Kind] = {whole: part for part, whole in LIST_KINDS.items()}


def is_list(kind: Kind) -> bool:
    """Whether values of a kind are lists."""
    return kind in _ELEMENTS


def element_kind(kind: Kind) -> Kind:
    """The kind of the elements of a list."""
    return _ELEMENTS[kind]


def list_of(kind: Kind) -> Kind:
    """The kind of lists of values of a kind."""
    return LIST_KINDS[kind]


@dataclass(frozen=True, slots=True)
class Lists:
    """Lists, one behind the other.

    values: the elements of all; lengths: int64 [n], 0 where null; valid: bool [n], whether there is a list.
    """

    values: Array
    lengths: Numbers
    valid: Numbers

    @staticmethod
    def of(array: Array) -> Lists:
        """What an Arrow array of lists holds.  O(elements)."""
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        return Lists(array.flatten(), lengths, array.is_valid().to_numpy(zero_copy_only=False))

    @property
    def starts(self) -> Numbers:
        """Where each begins."""
        return np.cumsum(self.lengths) - self.lengths

    @property
    def parents(self) -> Numbers:
        """Which list each element is of."""
        return np.repeat(np.arange(self.lengths.shape[0]), self.lengths)

    def taken(self, places: Numbers, lengths: Numbers, valid: Numbers | None = None) -> Lists:
        """Lists of some of the elements, list by list."""
        return Lists(self.values.take(pa.array(places)), lengths, self.valid if valid is None else valid)

    def kept(self, which: Numbers) -> Lists:
        """Without the elements for which `which` is false."""
        lengths = np.bincount(self.parents[which], minlength=self.lengths.shape[0])
        return Lists(self.values.filter(pa.array(which)), lengths, self.valid)

    def array(self) -> Array:
        """As an Arrow array."""
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.where(self.valid, self.lengths, 0))])
        mask = None if self.valid.all() else pa.array(~self.valid)
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), self.values, mask=mask)


def codes(*arrays: Array) -> list[Numbers]:
    """Values as whole numbers in their order, alike over all arrays; -1: null.  NaN is one value, after all others."""
    both = pa.concat_arrays([*arrays])
    null = both.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_string(both.type):
        coded = both.dictionary_encode()
        order = pc.array_sort_indices(coded.dictionary).to_numpy()
        rank = np.empty(order.shape[0] + 1, np.int64)
        rank[order], rank[-1] = np.arange(order.shape[0]), -1
        found = rank[pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False)]
    else:
        plain = both.cast(pa.int64()) if pa.types.is_timestamp(both.type) or pa.types.is_boolean(both.type) else both
        numbers = pc.fill_null(plain, pa.scalar(0, plain.type)).to_numpy(zero_copy_only=False)
        found = np.unique(numbers + numbers.dtype.type(0), return_inverse=True)[1]  # -0.0 is 0.0
    found = np.where(null, -1, found).astype(np.int64)
    ends = np.cumsum([len(each) for each in arrays])[:-1]
    return [np.asarray(each) for each in np.split(found, ends)]
