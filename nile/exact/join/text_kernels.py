"""Texts as numbers: a hash of each, eight bytes at a time, and whether those of one code are one text.

Imports nothing of the lower floors on purpose: a fault there cannot reach here.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from nile.base.compiler import numba
from nile.exact.state.kernels import inlined, kernel

__all__ = ["first_texts", "hold_texts", "text_words", "unlike_texts"]

Array = np.ndarray[Any, Any]
_LITTLE = sys.byteorder == "little"


@numba.extending.intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _word_at(_typing: Any, data: Any, _at: Any) -> Any:
    """Eight bytes from a place on as uint64, however they lie; numba itself has only loads of whole elements."""

    def load(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, given[0])
        place = builder.gep(array.data, [given[1]])
        return builder.load(builder.bitcast(place, context.get_value_type(numba.types.uint64).as_pointer()), align=1)

    return numba.types.uint64(data, numba.types.int64), load


@inlined
def _hashed(data: Array, begin: Any, end: Any, factors: Array) -> Any:
    word = (np.uint64(end - begin) + factors[0]) * factors[1]
    word ^= word >> np.uint64(32)
    at = begin
    while at + 8 <= end:
        word = (word ^ _word_at(data, at)) * factors[1]
        word ^= word >> np.uint64(29)
        at += 8
    if at < end:
        rest = np.uint64(0)
        if _LITTLE and end >= 8:  # the last of the eight bytes that end here
            rest = _word_at(data, end - 8) >> np.uint64(8 * (8 - (end - at)))
        else:
            for k in range(at, end):
                rest |= np.uint64(data[k]) << np.uint64(8 * (k - at))
        word = (word ^ rest) * factors[2]
        word ^= word >> np.uint64(32)
    return np.int64((word * factors[0]) >> np.uint64(1))


@inlined
def _same(one: Array, begin: Any, end: Any, other: Array, at: Any, until: Any) -> Any:
    if end - begin != until - at:
        return False
    while begin + 8 <= end:
        if _word_at(one, begin) != _word_at(other, at):
            return False
        begin += 8
        at += 8
    while begin < end:
        if one[begin] != other[at]:
            return False
        begin += 1
        at += 1
    return True


@kernel
def text_words(data: Array, offsets: Array, valid: Array, factors: Array, words: Array) -> None:
    """A number from 0 on of each text, the same of equal ones: a hash of all its bytes; -1 for null.

    data: uint8; offsets: int32 or int64 [n + 1]; valid: bool [n], or [0] where none is null; factors: uint64 [3], odd,
    drawn; words: int64 [n].
    """
    for i in range(words.shape[0]):
        if valid.shape[0] and not valid[i]:
            words[i] = -1
        else:
            words[i] = _hashed(data, np.int64(offsets[i]), np.int64(offsets[i + 1]), factors)


@kernel
def hold_texts(
    data: Array, offsets: Array, words: Array, begin: int, ends: Array, arena: Array, held: int, codes: Array
) -> tuple[int, int]:
    """Hold the first text of each code and compare every other with it, from `begin` on, until there is no room for one
    more or one is unlike the first of its code: (where that was, how many are held).

    data, offsets: as of `text_words`; words: int64 [n], the codes of texts, which rise from `held`, below 0 for none;
    ends: int64, where held texts end in arena, uint8, behind a 0; codes: int32 [n], as words.
    """
    for i in range(begin, codes.shape[0]):
        code = words[i]
        codes[i] = code
        if code < 0:
            continue
        first, end = np.int64(offsets[i]), np.int64(offsets[i + 1])
        if code < held:
            if not _same(data, first, end, arena, ends[code], ends[code + 1]):
                return i, held
            continue
        at = ends[held]
        if at + end - first > arena.shape[0]:
            return i, held
        for k in range(first, end):
            arena[at + k - first] = data[k]
        held += 1
        ends[held] = at + end - first
    return codes.shape[0], held


@kernel
def first_texts(codes: Array, places: Array, offsets: Array, known: int, first: Array) -> None:
    """Where the first text of each code from `known` on begins and ends.

    codes: int64 [m], below 0 for none; places: int64 [m], which texts they are of; offsets: as of `text_words`; first:
    int64 [codes, 2], -1 where none is known.
    """
    for i in range(codes.shape[0]):
        code = codes[i]
        if code >= known and first[code, 0] < 0:
            first[code, 0], first[code, 1] = offsets[places[i]], offsets[places[i] + 1]


@kernel
def unlike_texts(codes: Array, places: Array, data: Array, offsets: Array, first: Array, first_data: Array) -> int:
    """How many texts differ from the first one of their code in first_data, where that is known.

    Arrays as of `first_texts` and `text_words`.
    """
    unlike = 0
    for i in range(codes.shape[0]):
        code = codes[i]
        if code >= 0 and first[code, 0] >= 0:
            begin, end = np.int64(offsets[places[i]]), np.int64(offsets[places[i] + 1])
            unlike += not _same(data, begin, end, first_data, first[code, 0], first[code, 1])
    return unlike
