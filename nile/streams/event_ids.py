"""Event ids: of tuples that a source sends again only the first is applied; and what may be a key."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.base.plain import can_be_ordered, decoded_type
from nile.summaries.errors import ConfigError, KeyTypeError
from nile.summaries.heavy import pa

__all__ = ["DUPLICATE", "Distinct", "check_event_id", "key_type_of"]

DUPLICATE = "duplicate event id"

Array = np.ndarray[Any, Any]


class Distinct:
    """Which tuples have the id and the time of one that came before.

    What is sent again has its time again: so an id need only be remembered while a tuple of its time may still come,
    and what comes after that is late.  Null ids are all different.  Memory: the ids of one lateness.  Cost: about
    half a microsecond a tuple.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[int, Any], None] = {}
        self._enough = 1024

    def repeated(self, ts: Array, ids: pa.Array, late: Array, since: int) -> Array:
        """Marks what came before, bool [n].

        ts: int64 [n]; ids: as many; late: bool [n], too late to be one; since: no tuple before this time (ns) can come
        any more once these have come.
        """
        out = np.zeros(ts.shape[0], bool)
        seen = self._seen
        for i, (pair, is_late) in enumerate(zip(zip(ts.tolist(), ids.to_pylist(), strict=True), late, strict=True)):
            if pair[1] is None or is_late:
                continue
            if pair in seen:
                out[i] = True
            else:
                seen[pair] = None
        if len(seen) > self._enough:
            self._forget(since)
            self._enough = max(1024, 2 * len(self._seen))
        return out

    def table(self, since: int, kind: pa.DataType) -> pa.Table:
        """What must be remembered: ts (int64) and id, in order of time, then of arrival."""
        self._forget(since)
        pairs = sorted(self._seen, key=lambda pair: pair[0])
        columns = [pa.array([pair[k] for pair in pairs], held) for k, held in ((0, pa.int64()), (1, kind))]
        return pa.table(columns, names=["ts", "id"])

    def go_on_from(self, events: pa.Table) -> None:
        """Remember what `table` gave."""
        pairs = zip(events["ts"].to_pylist(), events["id"].to_pylist(), strict=True)
        self._seen = dict.fromkeys(pairs)

    def _forget(self, since: int) -> None:
        self._seen = {pair: None for pair in self._seen if pair[0] >= since}


def check_event_id(kind: pa.DataType, *, where: str) -> None:
    """Raises ConfigError for a type whose values are no ids."""
    types = pa.types
    plain = kind.value_type if types.is_dictionary(kind) else kind
    tests = (types.is_integer, types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    if not any(test(plain) for test in (*tests, types.is_fixed_size_binary)):
        raise ConfigError(
            f"{where}: needed whole numbers, text or bytes to identify events; got {kind}; name another column"
        )


def key_type_of(column: pa.DataType, where: str) -> pa.DataType:
    """The type of a key column's values. Raises KeyTypeError for one that cannot be compared."""
    plain = decoded_type(column)
    if not can_be_ordered(plain):
        raise KeyTypeError(
            f"{where}: needed numbers, text, bytes, booleans, dates or times to join by; got {column}; "
            "name another column with key="
        )
    return plain
