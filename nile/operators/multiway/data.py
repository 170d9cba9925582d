"""What a join of n streams reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["MultiwayInput"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class MultiwayInput:
    """n ordered streams, merged: N tuples in total order (ts, position in the statement, arrival).

    streams: n.  stream: int8 [N], whose tuple; ordinal: int64 [N], its place in its stream; ts: int64 [N] ns;
    key: int32 [N], -1 null; hashes: uint64 [k], of each key.  costs: float64 [N], what the exact answer spends
    at each arrival; None: not known, allowed when the budget buys everything.  test: which candidate
    combinations (arrivals [c, n]) satisfy the condition, bool [c]; None: there is no condition.
    """

    streams: int
    stream: Array
    ordinal: Array
    ts: Array
    key: Array
    hashes: Array
    costs: Array | None
    test: Callable[[Array], Array] | None = None
