"""The exact two-way window join: pairs, matches per arrival, and how common each key stood at each arrival."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.summaries.errors import KeyTypeError

__all__ = ["ExactJoin", "encode", "encode_all"]

Array = np.ndarray[Any, Any]
_CHUNK = 1 << 16


def _kernels() -> Any:
    return importlib.import_module("nile.exact.join.chain_kernels")


def encode(left: Any, right: Any) -> tuple[Array, Array, int]:
    """Dense codes of two Arrow key columns, as `encode_all` gives them: (left, right, distinct keys)."""
    (first, second), distinct = encode_all((left, right))
    return first, second, distinct


def encode_all(key_columns: Sequence[Any]) -> tuple[tuple[Array, ...], int]:
    """Dense codes of Arrow key columns, equal exactly when the keys are: (codes of each, distinct keys).

    int64 [n] each, -1 for null; all NaN are one key and -0.0 is 0.0.  Raises KeyTypeError when two
    columns' types never compare equal.  Cost: one dictionary encoding of all.
    """
    pa = importlib.import_module("pyarrow")
    pc = importlib.import_module("pyarrow.compute")
    columns = []
    common = pa.null()
    for column in key_columns:
        if not isinstance(column, pa.Array | pa.ChunkedArray):
            raise KeyTypeError(
                f"join key: needed a column of Arrow; got {type(column).__module__}.{type(column).__name__}; write "
                "pyarrow.array(keys)"
            )
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if isinstance(whole, pa.ChunkedArray):
            whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], whole.type)
        if pa.types.is_dictionary(whole.type):
            whole = whole.cast(whole.type.value_type)
        columns.append(whole)
        if pa.types.is_null(common):
            common = whole.type
        elif whole.type != common and not pa.types.is_null(whole.type):
            common = _common_type(pa, common, whole.type)
    if pa.types.is_null(common):  # columns without a single key
        return tuple(np.full(len(column), -1, np.int64) for column in columns), 1
    if not any(map(len, columns)):
        return tuple(np.zeros(0, np.int64) for _ in columns), 1
    try:
        columns = [column.cast(common) for column in columns]
    except pa.ArrowInvalid as error:
        raise KeyTypeError(f"join key: both sides need values of {common}; got one beyond ({error}); cast it") from None
    if pa.types.is_floating(common):
        columns = [_canonical(pa, pc, column) for column in columns]
    together = pa.chunked_array(columns).dictionary_encode().combine_chunks()
    if isinstance(together, pa.ChunkedArray):
        together = pa.concat_arrays(together.unify_dictionaries().chunks)
    codes = together.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum([len(column) for column in columns])[:-1]
    return tuple(np.split(codes, ends)), max(1, len(together.dictionary))


def _common_type(pa: Any, a: Any, b: Any) -> Any:
    types = pa.types
    text = (types.is_string, types.is_large_string, types.is_string_view)
    for tests, wide in (
        ((types.is_integer,), pa.int64()),
        ((types.is_floating,), pa.float64()),
        (text, pa.large_string()),
        ((types.is_binary, types.is_large_binary, types.is_fixed_size_binary), pa.large_binary()),
        ((types.is_date,), pa.timestamp("ns")),
    ):
        if any(test(a) for test in tests) and any(test(b) for test in tests):
            return wide
    if types.is_timestamp(a) and types.is_timestamp(b) and (a.tz is None) == (b.tz is None):
        return pa.timestamp("ns", tz=a.tz)
    raise KeyTypeError(f"join key: both sides need comparable types; got {a} and {b}; cast one side")


def _canonical(pa: Any, pc: Any, column: Any) -> Any:
    wide = pc.add(column.cast(pa.float64()), 0.0)  # -0.0 + 0.0 is 0.0
    return pc.if_else(pc.is_nan(wide), pa.scalar(float("nan")), wide)


@dataclass(frozen=True, slots=True)
class ExactJoin:
    """Pairs (l, r) of two streams with equal keys and |ts_l - ts_r| <= window.

    left_ts, right_ts: int64 ns, not decreasing; left_code, right_code: int64 from `encode`; window: ns, or
    None for the whole stream.  Source: the judge of every approximate answer; DESIGN section 3.
    """

    left_ts: Array
    right_ts: Array
    left_code: Array
    right_code: Array
    keys: int
    window: int | None

    def order(self) -> Array:
        """The stream (0 left, 1 right) of each arrival in total order: int8 [n]."""
        order = np.empty(self.left_ts.shape[0] + self.right_ts.shape[0], np.int8)
        _kernels().merged_order(self.left_ts, self.right_ts, order)
        return order

    def matches(self) -> tuple[Array, Array]:
        """Per arrival: outputs it completes, and its key's tuples in both windows, itself included.  int64 [n]."""
        order = self.order()
        matches = np.zeros(order.shape[0], np.int64)
        standing = np.zeros(order.shape[0], np.int64)
        _kernels().count_matches(
            order, self.left_ts, self.right_ts, self.left_code, self.right_code, self.keys, self._window,
            matches, standing,
        )  # fmt: skip
        return matches, standing

    def pairs(self) -> Iterator[tuple[Array, Array]]:
        """The pairs as (left ordinals, right ordinals), in the order they complete, in chunks of up to 65,536."""
        order = self.order()
        newest = np.full((2, self.keys), -1, np.int64)
        left_before = np.full(self.left_ts.shape[0], -1, np.int64)
        right_before = np.full(self.right_ts.shape[0], -1, np.int64)
        progress = np.array([0, 0, 0, -2], np.int64)
        while progress[0] < order.shape[0]:
            left_out = np.empty(_CHUNK, np.int64)
            right_out = np.empty(_CHUNK, np.int64)
            n = _kernels().enumerate_pairs(
                order, self.left_ts, self.right_ts, self.left_code, self.right_code, self._window, newest,
                left_before, right_before, progress, left_out, right_out,
            )  # fmt: skip
            if n:
                yield left_out[:n], right_out[:n]

    @property
    def _window(self) -> int:
        return -1 if self.window is None else self.window
