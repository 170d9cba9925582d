"""Keys as joins compare them: several columns as one, of loaded streams and as they come, decimals as doubles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nile.base.nearest import nearest
from nile.base.plain import decoded_type
from nile.exact.join.chain import composite_codes
from nile.operators.inputs.joining import Loaded
from nile.summaries.hashing import key_words
from nile.summaries.heavy import pa, pc
from nile.summaries.key_types import is_hashed, key_family, widest

__all__ = ["comparable", "composed", "put_together", "puts_together"]

Array = np.ndarray[Any, Any]


def composed(streams: Sequence[Loaded], further: Sequence[tuple[str, ...]]) -> tuple[Loaded, ...]:
    """The streams of a join by several columns, of which keys are codes, equal exactly when all columns are.

    further: of each, its columns beside its key, as many of each, which are carried.  Places that are alike share an
    object.  Raises KeyTypeError.
    """
    if not any(further):
        return tuple(streams)
    alike = [(id(one), names) for one, names in zip(streams, further, strict=True)]
    own = dict(zip(alike, streams, strict=True))
    keys: list[list[pa.ChunkedArray]] = []
    for (_, names), one in own.items():
        batch = one.carried
        columns = [pa.array([], pa.null()) if batch is None else batch.column(name) for name in names]
        keys.append([one.key, *(pa.chunked_array([column]) for column in columns)])
    codes = composite_codes(list(zip(*keys, strict=True)), threads=streams[0].threads)
    made = {
        at: replace(one, key=pa.chunked_array([_numbers(code)]), parts=tuple(parts))
        for (at, one), code, parts in zip(own.items(), codes, keys, strict=True)
    }
    return tuple(made[at] for at in alike)


def puts_together(kinds: Sequence[Sequence[pa.DataType]]) -> bool:
    """Whether `put_together` tells keys of several columns apart.  kinds: of each part its type in every stream.

    So it does where a part is of one family in all streams (`key_family`).  Raises KeyTypeError.
    """
    return all(len({key_family(kind, where="key") for kind in part}) == 1 for part in kinds)


def put_together(parts: Sequence[pa.Array]) -> pa.Array:
    """Keys of several columns as bytes, equal exactly when all columns are: [n], null where a part is null.

    These are the same in every batch and process, so that keys which come one by one need no codes given before:
    of each part eight bytes of its word, or the length of its text and this.  parts: [n] each.
    Cost: of two numbers 60 ns a tuple, of texts 100 more each.  Raises KeyTypeError.
    """
    pieces = [piece for part in parts for piece in _bytes_of(part)]
    return pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.large_binary()), null_handling="emit_null")


def _bytes_of(part: pa.Array) -> list[pa.Array]:
    """A part of a key as columns of bytes, of a fixed width or after one that tells theirs."""
    if not is_hashed(part.type):
        words, valid = key_words(part)
        return [_fixed(words, valid)]
    plain = part.dictionary_decode() if pa.types.is_dictionary(part.type) else part
    family = key_family(plain.type, where="key")
    if family.startswith("decimal"):  # all of one width
        wide = plain.cast(widest(family, plain.type))
        return [wide.view(pa.binary(32)).cast(pa.large_binary())]
    text = plain.cast(pa.large_binary())
    lengths = pc.binary_length(text).fill_null(0).to_numpy(zero_copy_only=False)
    return [_fixed(lengths.astype(np.int64), np.zeros(0, np.bool_)), text]


def _fixed(words: Array, valid: Array) -> pa.Array:
    """Eight bytes a word; null where it is not valid.  words: int64 [n]; valid: bool [n], or [0] where all are."""
    offsets = np.arange(0, 8 * words.shape[0] + 1, 8, dtype=np.int64)
    null = pa.py_buffer(np.packbits(valid, bitorder="little")) if valid.shape[0] else None
    data = pa.py_buffer(np.ascontiguousarray(words.astype("<i8", copy=False)))
    return pa.Array.from_buffers(pa.large_binary(), words.shape[0], [null, pa.py_buffer(offsets), data])


def comparable(streams: Sequence[Loaded]) -> tuple[Loaded, ...]:
    """The streams of a join, whose keys that are decimals are doubles where others' are: so these are compared."""
    kinds = [decoded_type(one.key.type) for one in streams]
    if not (any(map(pa.types.is_floating, kinds)) and any(map(pa.types.is_decimal, kinds))):
        return tuple(streams)
    made = {
        id(one): replace(one, key=nearest(one.key, pa.float64())) if pa.types.is_decimal(kind) else one
        for one, kind in zip(streams, kinds, strict=True)
    }
    return tuple(made[id(one)] for one in streams)


def _numbers(codes: Array) -> pa.Array:
    """Codes as a column; null where they are below 0."""
    null = codes < 0
    validity = pa.py_buffer(np.packbits(~null, bitorder="little")) if null.any() else None
    return pa.Array.from_buffers(pa.int64(), codes.shape[0], [validity, pa.py_buffer(codes)])
