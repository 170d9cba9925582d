"""From two stream managers to the input of a join: read, encode, merge, price."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from nile.base.contiguous import in_one
from nile.base.plain import decoded_type
from nile.exact.join.chain import ExactJoin, encode, encode_all, narrow_codes, window_codes
from nile.exact.join.count import count_whole
from nile.exact.state.lent import lent_together
from nile.expressions.conditions import Condition
from nile.operators.common.partners import partners
from nile.operators.join.join import JoinInput
from nile.preferences.clock import Pace, exact_costs, retime
from nile.streams.abreast import read_abreast
from nile.streams.accounting import Accounting
from nile.streams.holding import Holding
from nile.streams.manager import StreamManager, TupleBatch
from nile.summaries.costs import CostTable
from nile.summaries.hashing import PUBLIC, Encoded, KeyHasher, KeyTable
from nile.summaries.heavy import pa, pc

__all__ = [
    "Joinable", "KeyedStreams", "Loaded", "columns_asked", "load_stream", "load_together", "retimed",
]  # fmt: skip

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A whole stream in order.  ts: int64 [n] ns; key: Arrow chunked array [n]; accounting: what was read.

    carried: further columns [n] that were asked for (`StreamSpec.carry`), or None; hasher: of its keys.  Where a
    condition selects its tuples: rows, int64 [n], the place of each among all that were read (None: all are here), and
    excluded, how many it turned down, which are no part of the accounting.  source: what it was read
    from (`StreamManager.reads`).  threads: how many a join of it may use, None for all cores.  parts: the columns that
    the key is codes of, where it is one of several (`composed`); else none.
    """

    name: str
    ts: Array
    key: pa.ChunkedArray
    accounting: Accounting
    carried: pa.RecordBatch | None = None
    hasher: KeyHasher = PUBLIC
    rows: Array | None = None
    excluded: int = 0
    source: str = ""
    threads: int | None = None
    parts: tuple[pa.ChunkedArray, ...] = ()

    def __len__(self) -> int:
        return int(self.ts.shape[0])

    @property
    def told(self) -> pa.ChunkedArray:
        """What answers tell as key: of one of several columns the first."""
        return self.parts[0] if self.parts else self.key

    def places(self, tuples: Array) -> Array:
        """Where tuples lie among all that were read: int64 [m]."""
        return tuples if self.rows is None else self.rows[tuples]

    def selected(self, where: Condition | None) -> Loaded:
        """The tuples that satisfy a condition; null does not.  Its columns are carried."""
        if where is None:
            return self
        # A condition without columns needs rows to be true or false of.
        columns = (
            pa.RecordBatch.from_arrays([pa.array(self.ts)], names=["ts"]) if self.carried is None else self.carried
        )
        passing = pc.fill_null(where.mask(columns), False).to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(passing)
        at = pa.array(rows)
        gone = len(self) - rows.shape[0]
        return replace(
            self,
            ts=self.ts[rows],
            key=self.key.take(at),
            carried=None if self.carried is None else self.carried.take(at),
            accounting=self.accounting + Accounting(tuples_in=-gone, applied=-gone),
            rows=self.places(rows),
            excluded=self.excluded + gone,
        )


def load_stream(manager: StreamManager, *, where: Condition | None = None, batch_rows: int = 65_536) -> Loaded:
    """Read a stream to its end.  where: what selects its tuples; its columns are carried.

    Raises what the manager raises; memory: 8 bytes per tuple (16 under a condition), key, what is carried.
    """
    return read_abreast([manager], lambda one: _loaded(one, one.whole(batch_rows), where))[0]


def _loaded(
    manager: StreamManager, batches: Iterable[TupleBatch], where: Condition | None
) -> Generator[None, None, Loaded]:
    """A stream whose every batch is, or is being, read; between batches it yields."""
    name, hasher = manager.spec.name, manager.spec.hasher
    holding = Holding(f"stream '{name}'", manager.spec.scratch, counted=manager.reads != "Table")
    read = gone = 0
    names: list[str] = []
    for batch in batches:
        part = Loaded(name, batch.ts, pa.chunked_array([batch.key]), Accounting(), batch.carried, hasher)
        if where is not None:
            part = replace(part, rows=np.arange(read, read + len(part))).selected(where)
        read += len(batch.ts)
        gone += part.excluded
        names = [] if part.carried is None else part.carried.schema.names
        columns = [] if part.carried is None else part.carried.columns
        rows = [] if part.rows is None else [pa.array(part.rows)]
        key = part.key.chunk(0) if part.key.num_chunks == 1 else pa.concat_arrays(part.key.chunks)
        given = [key, *columns, *rows]
        holding.add(part.ts, pa.RecordBatch.from_arrays(given, names=[str(k) for k in range(len(given))]))
        yield
    holding.end()
    read_rows = holding.batches
    keys = [each.column(0) for each in read_rows]
    carried = [pa.RecordBatch.from_arrays(each.columns[1 : 1 + len(names)], names=names) for each in read_rows if names]
    return Loaded(
        name,
        lent_together(holding.times),
        pa.chunked_array(in_one(keys), keys[0].type if keys else pa.null()),
        manager.accounting + Accounting(tuples_in=-gone, applied=-gone),
        (pa.concat_batches(carried) if len(carried) > 1 else carried[0]) if carried else None,
        hasher,
        None if where is None else lent_together([each.column(each.num_columns - 1).to_numpy() for each in read_rows]),
        gone,
        manager.reads,
        manager.spec.threads,
    )


def columns_asked(
    streams: Sequence[str], keys: Sequence[str], where: Sequence[Condition | None], carry: Sequence[tuple[str, ...]]
) -> dict[str, list[str]]:
    """Of each stream, its key and then the further columns that a join reads; some of them twice."""
    wanted: dict[str, list[str]] = {}
    for k, (name, key, condition) in enumerate(zip(streams, keys, where, strict=True)):
        further = () if condition is None else condition.columns
        wanted.setdefault(name, []).extend((key, *(carry[k] if carry else ()), *further))
    return wanted


def load_together(
    manager: Callable[[str, str, tuple[str, ...]], StreamManager],
    streams: Sequence[str],
    keys: Sequence[str],
    where: Sequence[Condition | None],
    carry: Sequence[tuple[str, ...]] = (),
    batches: Mapping[str, Sequence[TupleBatch]] | None = None,
) -> tuple[Loaded, ...]:
    """The streams of a join, in the order of the statement; one that is named twice is read once.

    manager: of a stream, its key column and further columns; keys, where, carry: for each place the key column, what
    selects its tuples and the columns to carry; batches: of each stream, where it was read already.  Places that are
    alike in all share an object.  Raises what managers raise.
    """
    asked = list(zip(streams, keys, where, strict=True))
    wanted = columns_asked(streams, keys, where, carry)
    selecting = {name: {condition for other, _, condition in asked if other == name} for name in wanted}
    managers = {name: manager(name, of[0], tuple(dict.fromkeys(of[1:]))) for name, of in wanted.items()}

    def load(one: StreamManager) -> Generator[None, None, Loaded]:
        name = one.spec.name
        alike = next(iter(selecting[name])) if len(selecting[name]) == 1 else None
        return _loaded(one, one.whole() if batches is None else batches[name], alike)

    read = dict(zip(managers, read_abreast(list(managers.values()), load), strict=True))
    made: dict[tuple[str, str, Condition | None], Loaded] = {}
    for name, key, condition in asked:
        whole = read[name] if len(selecting[name]) == 1 else read[name].selected(condition)
        if key == wanted[name][0]:
            made.setdefault((name, key, condition), whole)
        elif whole.carried is not None:
            made[name, key, condition] = replace(whole, key=pa.chunked_array([whole.carried.column(key)]))
        else:  # no tuple, no columns
            made[name, key, condition] = replace(whole, key=pa.chunked_array([], type=pa.null()))
    return tuple(made[place] for place in asked)


class KeyedStreams:
    """The loaded streams of a join and their keys, worked out once for all its runs, when they are asked for.

    streams: in the order of the statement, sharing columns where a stream joins itself; window: ns or None; key_type:
    of the keys, common to all.  encoded: the keys and their table, where several joins share a stream and it is encoded
    once.  Raises KeyTypeError when the keys cannot be compared.
    """

    def __init__(
        self,
        streams: Sequence[Loaded],
        window: int | None,
        *,
        encoded: tuple[KeyTable, Sequence[Encoded]] | None = None,
    ) -> None:
        self._streams = tuple(streams)
        self.window = window
        if encoded is not None:
            self._encoded = encoded
        self.key_type = _comparable(self._streams)

    @property
    def streams(self) -> tuple[Loaded, ...]:
        """In the order of the statement."""
        return self._streams

    @cached_property
    def _encoded(self) -> tuple[KeyTable, Sequence[Encoded]]:
        keys = KeyTable(self.streams[0].hasher)
        encoded: dict[int, Encoded] = {}
        for one in self.streams:
            if id(one.key) not in encoded:
                encoded[id(one.key)] = keys.encode(one.key, where=f"stream '{one.name}'")
        return keys, [encoded[id(one.key)] for one in self.streams]

    @property
    def keys(self) -> KeyTable:
        """The distinct keys of all streams, hashed."""
        return self._encoded[0]

    @cached_property
    def left_keys(self) -> pa.Array:
        """The keys of the first stream, of the type that all have in common, or a dictionary of it: [n]."""
        key = self.streams[0].told
        whole = key.chunk(0) if key.num_chunks == 1 else pa.concat_arrays(key.chunks or [pa.nulls(0, key.type)])
        kind = whole.type.value_type if pa.types.is_dictionary(whole.type) else whole.type
        return whole if kind == self.key_type else whole.cast(self.key_type)

    def keys_of(self, stream: Array, ordinal: Array, codes: Array) -> pa.Array:
        """The keys of some tuples.  stream, ordinal: int64 [m], which they are; codes: theirs in `keys`."""
        if not self.streams[0].parts:
            return self.keys.decode(codes)
        whole = [one.told.cast(self.key_type) for one in self.streams]
        first = np.cumsum([0, *map(len, whole[:-1])])
        return pa.chunked_array([chunk for one in whole for chunk in one.chunks], self.key_type).take(
            pa.array(first[stream] + ordinal)
        ).combine_chunks()  # fmt: skip


class Joinable(KeyedStreams):
    """Two loaded streams with everything a join of them needs.

    `exact` is the chain join of `nile.exact`, which encodes keys for itself; `keys` and `input` are for operators that
    summarise.
    """

    def __init__(
        self,
        left: Loaded,
        right: Loaded,
        window: int | None,
        *,
        encoded: tuple[KeyTable, Encoded, Encoded] | None = None,
    ) -> None:
        super().__init__((left, right), window, encoded=None if encoded is None else (encoded[0], encoded[1:]))

    @property
    def left(self) -> Loaded:
        """The first stream."""
        return self.streams[0]

    @property
    def right(self) -> Loaded:
        """The second stream."""
        return self.streams[1]

    @cached_property
    def exact(self) -> ExactJoin:
        """The exact join: keys encoded without a hash of ours."""
        codes_left, codes_right, distinct = encode(self.left.key, self.right.key)
        return ExactJoin(self.left.ts, self.right.ts, codes_left, codes_right, distinct, self.window, self.threads)

    @property
    def threads(self) -> int | None:
        """How many finding the pairs may use; None: as many as there are cores."""
        return self.left.threads

    @cached_property
    def window_codes(self) -> tuple[Array, Array]:
        """Keys as window joins take them, which is cheaper than `exact` where they are numbers: int64 [n], [m]."""
        if "exact" in self.__dict__:
            return self.exact.left_code, self.exact.right_code
        left, right = window_codes((self.left.key, self.right.key), shared=True, threads=self.threads)
        return left, right

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

    @property
    def pairs(self) -> int:
        """How many pairs the exact answer has."""
        return int(self.matches.sum())

    @cached_property
    def candidates(self) -> int:
        """As `pairs`, counted without what each arrival completes."""
        ts = self.left.ts, self.right.ts
        if self.window is not None:
            known = {"exact", "window_codes"} & self.__dict__.keys()
            codes = None if known else narrow_codes((self.left.key, self.right.key))
            return count_whole(ts, codes or self.window_codes, self.window, threads=self.threads)
        return int(partners(0, (self.exact.left_code, self.exact.right_code), ts).sum())

    @property
    def has_ranges(self) -> bool:
        """Matches of a tuple are whole ranges."""
        return True

    def costs(self, table: CostTable, *, ranges: bool) -> Array:
        """What the exact answer spends at each arrival: float64 [n]."""
        return exact_costs(self.matches, table, ranges=ranges)

    def input(self, costs: CostTable, *, ranges: bool) -> JoinInput:
        """The operator's input under a cost table; ranges: one output stands for a whole range of pairs."""
        return JoinInput(
            left_ts=self.left.ts,
            right_ts=self.right.ts,
            left=self._encoded[1][0],
            right=self._encoded[1][1],
            order=self.order,
            costs=self.costs(costs, ranges=ranges),
            keys=self.keys.known,
        )


def _comparable(streams: Sequence[Loaded]) -> pa.DataType:
    """The type of all streams' keys.  Raises KeyTypeError."""
    none = KeyTable(streams[0].hasher)
    no_keys = [pa.array([], decoded_type(one.told.type)) for one in streams]  # a slice has its whole dictionary
    for one, key in zip(streams, no_keys, strict=True):
        none.encode(key, where=f"stream '{one.name}'")
    encode_all(no_keys)
    return streams[0].told.type if none.kind is None else none.kind


def retimed(streams: Sequence[Loaded], pace: Pace, seed: int) -> tuple[Loaded, ...]:
    """All streams as the pace plays them back: under replay "exponential" on new times, in the same total order."""
    if pace.replay != "exponential":
        return tuple(streams)
    ts = np.concatenate([one.ts for one in streams])
    which = np.arange(len(streams), dtype=np.int8)
    stream = np.repeat(which, [len(one) for one in streams])[np.argsort(ts, kind="stable")]
    times = retime(stream.shape[0], pace.mean, seed, pace.bursts)
    return tuple(replace(one, ts=times[stream == k]) for k, one in enumerate(streams))
