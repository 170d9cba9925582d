"""From two stream managers to the input of a join: read, encode, merge, price."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from nile.exact.join.chain import ExactJoin, encode
from nile.operators.join.join import JoinInput
from nile.preferences.clock import Pace, exact_costs, retime
from nile.streams.accounting import Accounting
from nile.streams.manager import StreamManager
from nile.summaries.costs import CostTable
from nile.summaries.hashing import PUBLIC, Encoded, KeyHasher, KeyTable
from nile.summaries.heavy import pa

__all__ = ["Joinable", "Loaded", "load_stream", "load_together", "retimed"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A whole stream in order.  ts: int64 [n] ns; key: Arrow chunked array [n]; accounting: what was read.

    carried: further columns [n] that were asked for (`StreamSpec.carry`), or None; hasher: of its keys.
    """

    name: str
    ts: Array
    key: pa.ChunkedArray
    accounting: Accounting
    carried: pa.RecordBatch | None = None
    hasher: KeyHasher = PUBLIC

    def __len__(self) -> int:
        return int(self.ts.shape[0])


def load_stream(manager: StreamManager, *, batch_rows: int = 65_536) -> Loaded:
    """Read a stream to its end.  Raises what the manager raises; memory: 8 bytes per tuple, key, what is carried."""
    times: list[Array] = []
    keys: list[Any] = []
    carried: list[Any] = []
    for batch in manager.batches(batch_rows):
        times.append(batch.ts)
        keys.append(batch.key)
        if batch.carried is not None:
            carried.append(batch.carried)
    ts = np.concatenate(times) if times else np.zeros(0, np.int64)
    column = pa.chunked_array(keys) if keys else pa.chunked_array([], type=pa.null())
    columns = pa.concat_batches(carried) if carried else None
    return Loaded(manager.spec.name, ts, column, manager.accounting, columns, manager.spec.hasher)


def load_together(
    manager: Callable[[str, str, tuple[str, ...]], StreamManager],
    streams: Sequence[str],
    keys: Sequence[str],
    carry: Sequence[tuple[str, ...]] = (),
) -> tuple[Loaded, ...]:
    """The streams of a join, in the order of the statement; one that is named twice is read once.

    manager: of a stream, its key column and further columns; keys, carry: for each place the key column and the
    columns to carry.  Places of one stream with one key column share an object.  Raises what managers raise.
    """
    wanted: dict[str, list[str]] = {}
    for k, name in enumerate(streams):
        wanted.setdefault(name, []).extend((keys[k], *(carry[k] if carry else ())))
    read = {
        name: load_stream(manager(name, columns[0], tuple(dict.fromkeys(columns[1:]))))
        for name, columns in wanted.items()
    }
    made: dict[tuple[str, str], Loaded] = {}
    for name, key in zip(streams, keys, strict=True):
        whole = read[name]
        if key == wanted[name][0]:
            made[name, key] = whole
        elif whole.carried is not None:
            made[name, key] = replace(whole, key=pa.chunked_array([whole.carried.column(key)]))
        else:  # no tuple, no columns
            made[name, key] = replace(whole, key=pa.chunked_array([], type=pa.null()))
    return tuple(made[pair] for pair in zip(streams, keys, strict=True))


class Joinable:
    """Two loaded streams with everything a join of them needs, worked out once for all its runs, when it is asked for.

    window: ns or None.  `exact` is the chain join of `nile.exact`, which encodes keys for itself; `keys` and `input`
    are for operators that summarise.  encoded: both sides' keys and their table, where several joins share a stream
    and it is encoded once.  Raises KeyTypeError when the keys cannot be compared.
    """

    def __init__(
        self,
        left: Loaded,
        right: Loaded,
        window: int | None,
        *,
        encoded: tuple[KeyTable, Encoded, Encoded] | None = None,
    ) -> None:
        self.left = left
        self.right = right
        self.window = window
        if encoded is not None:
            self._encoded = encoded
        self.key_type = _comparable(left, right)

    @cached_property
    def _encoded(self) -> tuple[KeyTable, Encoded, Encoded]:
        keys = KeyTable(self.left.hasher)
        sides = [keys.encode(one.key, where=f"stream '{one.name}'") for one in (self.left, self.right)]
        return keys, sides[0], sides[1]

    @property
    def keys(self) -> KeyTable:
        """The distinct keys of both streams, hashed."""
        return self._encoded[0]

    @cached_property
    def exact(self) -> ExactJoin:
        """The exact join: keys encoded without a hash of ours."""
        codes_left, codes_right, distinct = encode(self.left.key, self.right.key)
        return ExactJoin(self.left.ts, self.right.ts, codes_left, codes_right, distinct, self.window)

    @cached_property
    def order(self) -> Array:
        """The stream of each arrival in total order: int8 [n]."""
        return self.exact.order()

    @cached_property
    def _passed(self) -> tuple[Array, Array]:
        return self.exact.matches()

    @property
    def matches(self) -> Array:
        """Pairs that each arrival completes: int64 [n]."""
        return self._passed[0]

    @property
    def standing(self) -> Array:
        """Tuples of each arrival's key in both windows, itself included: int64 [n]."""
        return self._passed[1]

    @cached_property
    def left_keys(self) -> pa.Array:
        """The keys of the left stream, of the type that both have in common: [n]."""
        key = self.left.key
        whole = pa.concat_arrays(key.chunks) if key.num_chunks else pa.nulls(0, key.type)
        return whole if whole.type == self.key_type else whole.cast(self.key_type)

    @property
    def streams(self) -> tuple[Loaded, ...]:
        """Left and right."""
        return self.left, self.right

    @property
    def pairs(self) -> int:
        """How many pairs the exact answer has."""
        return int(self.matches.sum())

    candidates = pairs

    @property
    def has_ranges(self) -> bool:
        """Matches of a tuple are whole ranges."""
        return True

    @property
    def excluded(self) -> tuple[int, ...]:
        """Tuples of each stream that a condition on it alone turns down: none."""
        return 0, 0

    def costs(self, table: CostTable, *, ranges: bool) -> Array:
        """What the exact answer spends at each arrival: float64 [n]."""
        return exact_costs(self.matches, table, ranges=ranges)

    def input(self, costs: CostTable, *, ranges: bool) -> JoinInput:
        """The operator's input under a cost table; ranges: one output stands for a whole range of pairs."""
        return JoinInput(
            left_ts=self.left.ts,
            right_ts=self.right.ts,
            left=self._encoded[1],
            right=self._encoded[2],
            order=self.order,
            costs=self.costs(costs, ranges=ranges),
            keys=self.keys.known,
        )


def _comparable(left: Loaded, right: Loaded) -> pa.DataType:
    """The type of both streams' keys.  Raises KeyTypeError."""
    none = KeyTable(left.hasher)
    for one in (left, right):
        none.encode(one.key.slice(0, 0), where=f"stream '{one.name}'")
    encode(left.key.slice(0, 0), right.key.slice(0, 0))
    return left.key.type if none.kind is None else none.kind


def retimed(streams: Sequence[Loaded], pace: Pace, seed: int) -> tuple[Loaded, ...]:
    """All streams as the pace plays them back: under replay "exponential" on new times, in the same total order."""
    if pace.replay != "exponential":
        return tuple(streams)
    ts = np.concatenate([one.ts for one in streams])
    which = np.arange(len(streams), dtype=np.int8)
    stream = np.repeat(which, [len(one) for one in streams])[np.argsort(ts, kind="stable")]
    times = retime(stream.shape[0], pace.mean, seed, pace.bursts)
    return tuple(replace(one, ts=times[stream == k]) for k, one in enumerate(streams))
