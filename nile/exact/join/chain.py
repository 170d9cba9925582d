"""The exact two-way window join: pairs, matches per arrival, and how common each key stood at each arrival."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from nile.base.nearest import nearest
from nile.exact.join.dense import dense_codes
from nile.exact.join.listed import Lists, Words
from nile.exact.join.shared import text_codes
from nile.exact.state.lent import lent, roomy, taken
from nile.exact.state.types import common as in_common
from nile.summaries.errors import KeyTypeError

__all__ = ["ExactJoin", "composite_codes", "encode", "encode_all", "narrow_codes", "window_codes"]

Array = np.ndarray[Any, Any]
T = TypeVar("T")
_CHUNK = 1 << 16
_TEXTS = ("string", "large_string", "binary", "large_binary")
_DENSE = 2
"""Codes a tuple up to which tables by code are small enough."""
_MOST_CODES = 1 << 62


def _kernels() -> Any:
    return importlib.import_module("nile.exact.join.chain_kernels")


def encode(left: Any, right: Any) -> tuple[Array, Array, int]:
    """Dense codes of two Arrow key columns: (left, right, a number above every code, of the order of the tuples').

    As `encode_all` gives them, or keys that are whole numbers of a range that small as they are.  Other numbers cost 6
    to 20 ns each.
    """
    first, second = window_codes((left, right))
    above = 1 + max(int(each.max(initial=0)) for each in (first, second))
    if above > _DENSE * (first.shape[0] + second.shape[0]) + _CHUNK:
        (first, second), above = dense_codes((first, second))
    return first, second, above


def encode_all(key_columns: Sequence[Any]) -> tuple[tuple[Array, ...], int]:
    """Dense codes of Arrow key columns, equal exactly when the keys are: (codes of each, distinct keys).

    int64 [n] each, -1 for null; all NaN are one key and -0.0 is 0.0.  Raises KeyTypeError when two
    columns' types never compare equal.  Cost: of texts that of `text_codes`, of numbers that of `dense_codes`, of
    others one dictionary encoding of all.
    """
    columns, common = _alike(key_columns)
    pa = importlib.import_module("pyarrow")
    if pa.types.is_null(common):  # columns without a single key
        return tuple(np.full(len(column), -1, np.int64) for column in columns), 1
    if not any(map(len, columns)):
        return tuple(np.zeros(0, np.int64) for _ in columns), 1
    found = text_codes(columns) if str(common) in _TEXTS else None
    if found is not None:
        return found
    words = _words(columns, common)
    if words is not None:
        return dense_codes(words)
    together = pa.chunked_array(columns).dictionary_encode().combine_chunks()
    if isinstance(together, pa.ChunkedArray):
        together = pa.concat_arrays(together.unify_dictionaries().chunks)
    codes = together.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum([len(column) for column in columns])[:-1]
    return tuple(np.split(codes, ends)), max(1, len(together.dictionary))


def window_codes(key_columns: Sequence[Any], *, shared: bool = False, threads: int | None = None) -> tuple[Array, ...]:
    """Codes of Arrow key columns as window joins take them, which hash them: equal exactly when the keys are.

    int64 [n] each, below 0 for null, else anything from 0 on.  Whole numbers, dates, times and floats from 0 on are
    taken as they are (whole numbers less the least one), which costs a twentieth of an encoding; other keys are
    encoded, of dictionaries of texts each value once.  shared: texts that not all columns have may be below 0 too;
    threads: how many may be used for that, None for all cores.  Raises KeyTypeError as `encode_all` does.
    """
    given = [_in_one_chunk(each) for each in key_columns]
    if any(map(_is_dictionary_of_texts, given)):
        values = [each.dictionary if _is_dictionary_of_texts(each) else each for each in given]
        codes = window_codes(values, shared=shared, threads=threads)
        return tuple(_spread(each, own) for each, own in zip(given, codes, strict=True))
    columns, common = _alike(given)
    words = _words(columns, common)
    if words is not None:
        return words
    found = text_codes(columns, shared=shared, threads=threads) if str(common) in _TEXTS else None
    return encode_all(key_columns)[0] if found is None else found[0]


def composite_codes(parts: Sequence[Sequence[Any]], *, threads: int | None = None) -> tuple[Array, ...]:
    """As `window_codes`, of keys of several columns.  parts: of each part its Arrow column in every stream.

    int64 [n] each, below 0 where a part is null or a text that not all streams have.  Parts are numbers of a mixed
    radix; one whose range is too wide for that is encoded first.  Cost: that of `window_codes` for each part, and 2 ns
    a tuple and further part.  Raises KeyTypeError as `encode_all` does.
    """
    codes, above = window_codes(parts[0], shared=True, threads=threads), 0
    for columns in parts[1:]:
        above = above or _above(codes)
        own = window_codes(columns, shared=True, threads=threads)
        size = _above(own)
        if above * size > _MOST_CODES and size >= above:
            own, size = dense_codes(own)
        if above * size > _MOST_CODES:
            codes, above = dense_codes(codes)
        if above * size > _MOST_CODES:
            own, size = dense_codes(own)
        codes = tuple(_put_together(one, size, other) for one, other in zip(codes, own, strict=True))
        above *= size
    return codes


def _above(codes: Sequence[Array]) -> int:
    """A number above every code, 1 or more."""
    return 1 + max(0, *(int(each.max(initial=0)) for each in codes))


def _put_together(codes: Array, size: int, own: Array) -> Array:
    """Codes of two parts together.  size: above every one of the second's."""
    both = roomy(codes.shape[0])
    np.multiply(codes, size, out=both)
    both += own
    if codes.min(initial=0) < 0 or own.min(initial=0) < 0:
        both[(codes < 0) | (own < 0)] = -1
    return both


def _words(columns: Sequence[Any], common: Any) -> tuple[Array, ...] | None:
    """Keys of one type, each column in one chunk, that are numbers from 0 on or can be made so: int64 [n], null below.

    None of others.
    """
    pa = importlib.import_module("pyarrow")
    types = pa.types
    if types.is_floating(common):
        words = [_numbers(column.view(pa.int64())) for column in columns]
    elif (
        (types.is_integer(common) and not types.is_uint64(common))
        or types.is_timestamp(common)
        or types.is_date(common)
    ):
        words = [_numbers(column) for column in columns]
    else:
        return None
    least = min((int(each.min()) for each in words if each.shape[0]), default=0)
    most = max((int(each.max()) for each in words if each.shape[0]), default=0)
    if least < 0:
        if types.is_floating(common) or most - least > np.iinfo(np.int64).max:
            return None
        words = [each - least for each in words]
    for at, column in enumerate(columns):
        if column.null_count:
            words[at] = np.where(column.is_null().to_numpy(zero_copy_only=False), -1, words[at])
    return tuple(words)


def narrow_codes(key_columns: Sequence[Any]) -> tuple[Array, ...] | None:
    """Codes as `window_codes` gives them, of whole numbers of 32 bits from 0 on and dates, in their own memory: int32
    [n] each, not to be written to.  None of other keys, and where some are null.

    Raises KeyTypeError as `encode_all` does.
    """
    pa = importlib.import_module("pyarrow")
    narrow = (pa.int32(), pa.date32())
    if any(column.type not in narrow or column.null_count for column in key_columns):
        return None
    columns, _ = _alike(key_columns)
    words = tuple(lent(column.view(pa.int32()).to_numpy()) for column in columns)
    return None if any(int(each.min(initial=0)) < 0 for each in words) else words


def _numbers(column: Any) -> Array:
    """A column of one chunk, of numbers or times, as int64, not to be written to; 0 for null."""
    pa = importlib.import_module("pyarrow")
    narrow = pa.types.is_date32(column.type)
    whole = column.cast(pa.int32()) if narrow else column
    whole = whole.cast(pa.int64())
    return lent((whole.fill_null(0) if whole.null_count else whole).to_numpy(zero_copy_only=False))


def _in_one_chunk(column: Any) -> Any:
    """A column of Arrow as one array; anything else as it is."""
    pa = importlib.import_module("pyarrow")
    if not isinstance(column, pa.ChunkedArray):
        return column
    whole = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], whole.type)
    return whole


def _is_dictionary_of_texts(column: Any) -> bool:
    pa = importlib.import_module("pyarrow")
    return isinstance(column, pa.DictionaryArray) and str(column.type.value_type) in _TEXTS


def _spread(column: Any, codes: Array) -> Array:
    """The codes of a column's rows, given those of its dictionary's values; of any other column as they are."""
    if not _is_dictionary_of_texts(column):
        return codes
    places = column.indices
    if not places.null_count:
        return taken(codes, places.to_numpy())
    at = places.fill_null(0).to_numpy()
    found = taken(codes, at) if codes.shape[0] else np.full(at.shape[0], -1, np.int64)
    found[places.is_null().to_numpy(zero_copy_only=False)] = -1
    return found


def _alike(key_columns: Sequence[Any]) -> tuple[list[Any], Any]:
    """The columns, each in one chunk, of the one type they have in common, and that type."""
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
        whole = _in_one_chunk(column)
        if pa.types.is_dictionary(whole.type):
            whole = whole.cast(whole.type.value_type)
        columns.append(whole)
        if pa.types.is_null(common):
            common = whole.type
        elif whole.type != common and not pa.types.is_null(whole.type):
            shared = in_common(common, whole.type)
            if shared is None:
                raise KeyTypeError(
                    f"join key: both sides need comparable types; got {common} and {whole.type}; cast one side"
                )
            common = shared
    if pa.types.is_null(common):
        return columns, common
    try:
        columns = [column if column.type == common else nearest(column, common) for column in columns]
    except pa.ArrowInvalid as error:
        raise KeyTypeError(f"join key: both sides need values of {common}; got one beyond ({error}); cast it") from None
    if pa.types.is_floating(common):
        columns = [_canonical(pa, pc, column) for column in columns]
    return columns, common


def _canonical(pa: Any, pc: Any, column: Any) -> Any:
    wide = column.cast(pa.float64())
    if not _kernels().has_other_forms(_numbers(wide.view(pa.int64()))):
        return wide
    wide = pc.add(wide, 0.0)  # -0.0 + 0.0 is 0.0
    return pc.if_else(pc.is_nan(wide), pa.scalar(float("nan")), wide)


@dataclass(frozen=True, slots=True)
class ExactJoin:
    """Pairs (l, r) of two streams with equal keys and |ts_l - ts_r| <= window.

    left_ts, right_ts: int64 ns, not decreasing; left_code, right_code: int64 from `encode`; window: ns, or
    None for the whole stream; threads: how many may be used, None for all cores.
    Source: the judge of every approximate answer; DESIGN section 3.
    """

    left_ts: Array
    right_ts: Array
    left_code: Array
    right_code: Array
    keys: int
    window: int | None
    threads: int | None = None

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
        """The pairs as (left ordinals, right ordinals), in the order they complete, in chunks of up to 65,528."""
        return self.made(lambda block: (block[:, 0], block[:, 1]))

    def made(self, make: Callable[[Array], T], *, kept: bool = True, words: Words[T] | None = None) -> Iterator[T]:
        """What `make` makes of each chunk of pairs, int64 [m, 2], m up to 65,528, on the thread that found it.

        kept: whether that holds the chunk itself, or a part of it; else its room serves for the next one.
        words: what is made of the same pairs instead.
        """
        return self.listed(words).made(make, kept=kept)

    def listed(self, words: Words[Any] | None = None) -> Lists:
        """The lists that `made` finds pairs by."""
        ts, codes = (self.left_ts, self.right_ts), (self.left_code, self.right_code)
        return Lists(ts, codes, self._window, self.keys, threads=self.threads, words=words)

    @property
    def _window(self) -> int:
        return -1 if self.window is None else self.window
