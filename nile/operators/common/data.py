"""What goes into a join of two streams, and what comes out."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from nile.summaries.hashing import Encoded

__all__ = ["JoinInput", "Outputs"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class JoinInput:
    """Two ordered streams, merged.

    left_ts, right_ts: int64 ns; left, right: encoded keys; order: int8 [n], the stream of each arrival;
    costs: float64 [n], what the exact answer spends at each arrival; keys: distinct codes.  ruled_out: bool [n] or of
    length 0, arrivals whose key a shared summary tells to have no partner: they come as nulls do; asked: what that cost
    to ask, in units of the cost table.
    """

    left_ts: Array
    right_ts: Array
    left: Encoded
    right: Encoded
    order: Array
    costs: Array
    keys: int
    ruled_out: Array = field(default_factory=lambda: np.zeros(0, bool))
    asked: float = 0.0

    def times(self) -> Array:
        """The time of each arrival in total order: int64 [n]."""
        out = np.empty(self.order.shape[0], np.int64)
        out[self.order == 0] = self.left_ts
        out[self.order == 1] = self.right_ts
        return out


@dataclass(frozen=True, slots=True)
class Outputs:
    """A batch of outputs.  Pairs: left, right ordinals int64 [n].  weight: float64 [n], 1 / inclusion probability.

    Ranges: `ordinal` and `side` of the probing tuple, ranks [low, high) in the other stream's list of its key.
    query: int64 [n], where several standing queries found them.
    left_ts, right_ts, key: int64 [n], times of pairs, ns, and the eight bytes of each key, where they are known; keys
    that are texts as an Arrow array.
    """

    left: Array
    right: Array
    weight: Array
    side: Array | None = None
    low: Array | None = None
    high: Array | None = None
    query: Array | None = None
    left_ts: Array | None = None
    right_ts: Array | None = None
    key: Any = None

    def __len__(self) -> int:
        return int(self.weight.shape[0])

    @property
    def ordinals(self) -> tuple[Array, ...]:
        """Of pairs: left and right ordinals."""
        return self.left, self.right

    def first(self, count: int) -> Outputs:
        """The first outputs of the batch."""
        whole = {field.name: getattr(self, field.name) for field in fields(self)}
        cut: dict[str, Any] = {name: None if column is None else column[:count] for name, column in whole.items()}
        return type(self)(**cut)
