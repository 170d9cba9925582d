"""Values of a column as whole numbers of the same order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from nile.base.plain import decoded_type
from nile.exact.state.arrow import Array, pa
from nile.exact.state.words import Encoder, from_numbers

__all__ = ["OrderKeys"]

_FLIP = np.int64(np.iinfo(np.int64).min)
_MANY = 4096


class OrderKeys:
    """Keys of values: NaN is above all numbers and -0.0 is 0.0.

    Numbers and times are turned, O(1); of text, bytes and what else there is the different values are kept in order,
    and a batch with new ones numbers all of them anew.
    """

    DERIVED: ClassVar = ("kind", "_encoder", "_ranked", "_ranks", "_floating", "_unsigned")

    def __init__(self, kind: Any) -> None:
        self.kind = decoded_type(kind)
        self._encoder = Encoder([self.kind], exact=False)
        self._ranked: list[Any] | None = [] if 0 in self._encoder.values or self._encoder.width > 2 else None
        self._ranks: dict[Any, int] = {}
        self._floating = bool(pa.types.is_floating(self.kind))
        self._unsigned = bool(pa.types.is_uint64(self.kind))

    def of(self, column: Any, held: Callable[[], Array], moved: Callable[[Array], None]) -> Array:
        """int64 [n], 0 where null.

        held: keys that the caller has, asked for where there are many; moved: told a table of the keys given so far to
        those that the same values have now.
        """
        if self._ranked is None:
            return self.turned(np.ascontiguousarray(self._encoder.encode([column])[:, 0]))
        encoded = column.dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
        fresh = [value for value in distinct if value not in self._ranks]
        if fresh:
            self._rank(fresh, [self._ranks[value] for value in distinct if value in self._ranks], held, moved)
        table = np.array([self._ranks[value] for value in distinct] + [0], np.int64)
        found: Array = table[encoded.indices.fill_null(len(distinct)).to_numpy(zero_copy_only=False)]
        return found

    def turned(self, numbers: Array) -> Array:
        """Numbers to keys of the same order, and back: its own inverse."""
        if self._floating:
            return np.where(numbers < 0, ~numbers ^ _FLIP, numbers)
        return numbers ^ _FLIP if self._unsigned else numbers

    def _rank(
        self, fresh: list[Any], back: list[int], held: Callable[[], Array], moved: Callable[[Array], None]
    ) -> None:
        """Number all values anew, in order; where they are many, those are dropped that nobody has.

        back: keys of values in the batch at hand that are known: nobody need have them yet.
        """
        assert self._ranked is not None
        old = self._ranked
        kept = old
        if len(old) > _MANY:
            stays = np.zeros(len(old), bool)
            stays[held()] = True
            stays[back] = True
            if len(old) > 2 * int(stays.sum()):
                kept = [value for value, stay in zip(old, stays, strict=True) if stay]
        self._ranked = sorted([*kept, *fresh])
        self._ranks = {value: i for i, value in enumerate(self._ranked)}
        if old:
            moved(np.array([self._ranks.get(value, 0) for value in old], np.int64))

    def values(self, keys: Array, mask: Any, kind: Any) -> Any:
        """The values of keys as an Arrow array of `kind`; mask: bool [n] where null, or None."""
        if self._ranked is None:
            return from_numbers(self.turned(keys), kind, mask)
        values = [self._ranked[key] for key in keys.tolist()] if self._ranked else [None] * keys.shape[0]
        return pa.array(values, self.kind, mask=mask).cast(kind)

    def doubles(self, keys: Array) -> Array:
        """Keys of numbers as doubles."""
        numbers = np.ascontiguousarray(self.turned(keys))
        if self._floating:
            return numbers.view(np.float64)
        return (numbers.view(np.uint64) if self._unsigned else numbers).astype(np.float64)

    @property
    def memory(self) -> int:
        """Bytes."""
        return 150 * len(self._ranks)
