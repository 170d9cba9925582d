"""From two stream managers to the input of a join: read, encode, merge, price."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.exact.chain import ExactJoin, encode
from nile.operators.join import JoinInput
from nile.streams.accounting import Accounting
from nile.streams.manager import StreamManager
from preferences.clock import Pace, exact_costs, retime
from summaries.costs import CostTable
from summaries.hashing import KeyTable
from summaries.lazy import lazy

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = lazy("pyarrow")

__all__ = ["Joinable", "Loaded", "load_stream", "retimed"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A whole stream in order.  ts: int64 [n] ns; key: Arrow chunked array [n]; accounting: what was read."""

    name: str
    ts: Array
    key: pa.ChunkedArray
    accounting: Accounting

    def __len__(self) -> int:
        return int(self.ts.shape[0])


def load_stream(manager: StreamManager, *, batch_rows: int = 65_536) -> Loaded:
    """Read a stream to its end.  Raises what the manager raises; memory: 8 bytes a tuple and the key."""
    times: list[Array] = []
    keys: list[Any] = []
    for batch in manager.batches(batch_rows):
        times.append(batch.ts)
        keys.append(batch.key)
    ts = np.concatenate(times) if times else np.zeros(0, np.int64)
    column = pa.chunked_array(keys) if keys else pa.chunked_array([], type=pa.null())
    return Loaded(manager.spec.name, ts, column, manager.accounting)


class Joinable:
    """Two loaded streams with everything a join of them needs, worked out once for all its runs.

    window: ns or None.  The exact pass (`matches`, `standing`) is the chain join of `nile.exact`, which
    encodes keys for itself.  Raises KeyTypeError when the keys cannot be compared.
    """

    def __init__(self, left: Loaded, right: Loaded, window: int | None) -> None:
        self.left = left
        self.right = right
        self.window = window
        self.keys = KeyTable()
        self._left = self.keys.encode(left.key, where=f"stream '{left.name}'")
        self._right = self.keys.encode(right.key, where=f"stream '{right.name}'")
        codes_left, codes_right, distinct = encode(left.key, right.key)
        self.exact = ExactJoin(left.ts, right.ts, codes_left, codes_right, distinct, window)
        self.order = self.exact.order()
        self.matches, self.standing = self.exact.matches()

    @property
    def pairs(self) -> int:
        """How many pairs the exact answer has."""
        return int(self.matches.sum())

    def input(self, costs: CostTable, *, ranges: bool) -> JoinInput:
        """The operator's input under a cost table; ranges: one output stands for a whole range of pairs."""
        return JoinInput(
            left_ts=self.left.ts,
            right_ts=self.right.ts,
            left=self._left,
            right=self._right,
            order=self.order,
            costs=exact_costs(self.matches, costs, ranges=ranges),
            keys=self.keys.known,
        )


def retimed(left: Loaded, right: Loaded, pace: Pace, seed: int) -> tuple[Loaded, Loaded]:
    """Both streams as the pace plays them back: under replay "exponential" on new times, in the same total order."""
    if pace.replay != "exponential":
        return left, right
    ts = np.concatenate([left.ts, right.ts])
    stream = np.repeat(np.array([0, 1], np.int8), (len(left), len(right)))[np.argsort(ts, kind="stable")]
    times = retime(stream.shape[0], pace.mean, seed, pace.bursts)
    return replace(left, ts=times[stream == 0]), replace(right, ts=times[stream == 1])
