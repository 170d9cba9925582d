"""Kernels that hash keys and give each distinct key a dense code."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.summaries.kernels import U8, inlined, kernel

Array = np.ndarray[Any, Any]
Word = Any  # an unsigned 64-bit integer, which wraps: numpy's to Python, a machine word to the compiler

_M1 = U8(0xBF58476D1CE4E5B9)
_M2 = U8(0x94D049BB133111EB)
_C1 = U8(0x87C37B91114253D5)
_C2 = U8(0x4CF5AD432745937F)
_ALL = U8(0xFFFFFFFFFFFFFFFF)
_F1 = U8(0xFF51AFD7ED558CCD)
_F2 = U8(0xC4CEB9FE1A85EC53)


@kernel
def mix(value: Word, seed: Word) -> Word:
    """The splitmix64 finaliser of `value + seed` (mod 2**64): a bijection for each seed."""
    z = U8(value) + U8(seed)
    z = (z ^ (z >> U8(30))) * _M1
    z = (z ^ (z >> U8(27))) * _M2
    return z ^ (z >> U8(31))


@kernel
def mix_all(values: Array, seed: Word, out: Array) -> None:
    """out[i] = mix(values[i], seed).  values: int64 or uint64 [n]; out: uint64 [n]."""
    for i in range(values.shape[0]):
        out[i] = mix(values[i], seed)


@kernel
def _word(data: Array, at: int) -> Word:
    word = U8(0)
    begin = U8(at)  # an index that may be negative is looked at for that, byte by byte
    for j in range(8):
        word |= U8(data[begin + U8(j)]) << U8(8 * j)
    return word


@kernel
def _rotate(x: Word, by: int) -> Word:
    return (x << U8(by)) | (x >> U8(64 - by))


@kernel
def _final(k: Word) -> Word:
    k ^= k >> U8(33)
    k *= _F1
    k ^= k >> U8(33)
    k *= _F2
    return k ^ (k >> U8(33))


@inlined
def _murmur(data: Array, begin: int, end: int, seed: Word) -> tuple[Word, Word]:
    """The low and the high 64 bits of MurmurHash3 x64-128 of data[begin:end] (uint8): what mmh3 gives."""
    h1 = U8(seed)
    h2 = U8(seed)
    length = end - begin
    blocks = length // 16
    for b in range(blocks):
        k1 = _word(data, begin + 16 * b)
        k2 = _word(data, begin + 16 * b + 8)
        h1 ^= _rotate(k1 * _C1, 31) * _C2
        h1 = (_rotate(h1, 27) + h2) * U8(5) + U8(0x52DCE729)
        h2 ^= _rotate(k2 * _C2, 33) * _C1
        h2 = (_rotate(h2, 31) + h1) * U8(5) + U8(0x38495AB5)
    tail = begin + 16 * blocks
    rest = end - tail
    k1 = U8(0)
    k2 = U8(0)
    if tail + 16 <= data.shape[0]:  # what follows may be read: by words, without a branch for each byte
        if rest > 0:
            k1 = _word(data, tail) & (_ALL >> U8(64 - 8 * min(rest, 8)))
        if rest > 8:
            k2 = _word(data, tail + 8) & (_ALL >> U8(128 - 8 * rest))
    else:
        for j in range(min(rest, 8)):
            k1 |= U8(data[tail + j]) << U8(8 * j)
        for j in range(8, rest):
            k2 |= U8(data[tail + j]) << U8(8 * (j - 8))
    if rest > 8:
        h2 ^= _rotate(k2 * _C2, 33) * _C1
    if rest > 0:
        h1 ^= _rotate(k1 * _C1, 31) * _C2
    h1 ^= U8(length)
    h2 ^= U8(length)
    h1 += h2
    h2 += h1
    h1 = _final(h1)
    h2 = _final(h2)
    h1 += h2
    return h1, h1 + h2


@kernel
def murmur(data: Array, begin: int, end: int, seed: Word) -> Word:
    """The low 64 bits of MurmurHash3 x64-128 of data[begin:end] (uint8)."""
    low, _ = _murmur(data, begin, end, seed)
    return low


@kernel
def murmur_whole(data: Array, out: Array) -> None:
    """All 128 bits of MurmurHash3 x64-128 of data (uint8 [n]), without a seed: uint64 [2], the low ones first."""
    low, high = _murmur(data, 0, data.shape[0], U8(0))
    out[0] = low
    out[1] = high


@kernel
def murmur_all(data: Array, offsets: Array, seed: Word, out: Array) -> None:
    """out[i] = murmur(data[offsets[i]:offsets[i + 1]]).  data: uint8; offsets: int32 or int64 [n + 1]; out: uint64
    [n]."""
    for i in range(offsets.shape[0] - 1):
        out[i] = murmur(data, int(offsets[i]), int(offsets[i + 1]), seed)


@kernel
def intern_words(
    values: Array,
    hashes: Array,
    valid: Array,
    table: Array,
    words: Array,
    known: int,
    begin: int,
    codes: Array,
) -> tuple[int, int]:
    """Give each value its dense code, adding new ones, until the table is half full.

    values: int64 [n]; hashes: uint64 [n]; valid: bool [n] or length 0 (all valid); table: int32, a power of
    two of slots holding code + 1; words: int64, the value of each code; known: codes given so far.
    codes: int32 [n], -1 for null.  Linear probing; equal hashes never merge values, values are compared.
    Returns (first position not done, codes known): less than n means `grow the table and call again`.
    """
    mask = table.shape[0] - 1
    limit = min(table.shape[0] // 2, words.shape[0])
    check = valid.shape[0] > 0
    for i in range(begin, values.shape[0]):
        if check and not valid[i]:
            codes[i] = -1
            continue
        value = values[i]
        slot = np.int64(hashes[i] & U8(mask))
        while True:
            entry = table[slot]
            if entry == 0:
                if known >= limit:
                    return i, known
                words[known] = value
                known += 1
                table[slot] = known
                codes[i] = known - 1
                break
            if words[entry - 1] == value:
                codes[i] = entry - 1
                break
            slot = (slot + 1) & mask
    return values.shape[0], known


@kernel
def intern_bytes(
    data: Array,
    offsets: Array,
    hashes: Array,
    table: Array,
    arena: Array,
    ends: Array,
    key_hashes: Array,
    known: int,
    begin: int,
    codes: Array,
) -> tuple[int, int]:
    """Like `intern_words` for byte strings data[offsets[i]:offsets[i + 1]].

    arena: uint8, the bytes of all keys back to back; ends: int64, where each key ends in it (ends[c] for
    code c, its start is ends[c - 1]); key_hashes: uint64, the hash of each code.
    Returns early when the table is half full or the arena cannot take the next key.
    """
    mask = table.shape[0] - 1
    limit = min(table.shape[0] // 2, ends.shape[0])
    for i in range(begin, offsets.shape[0] - 1):
        a = offsets[i]
        n = offsets[i + 1] - a
        h = hashes[i]
        slot = np.int64(h & U8(mask))
        while True:
            entry = table[slot]
            if entry == 0:
                at = ends[known - 1] if known > 0 else 0
                if known >= limit or at + n > arena.shape[0]:
                    return i, known
                for j in range(n):
                    arena[at + j] = data[a + j]
                ends[known] = at + n
                key_hashes[known] = h
                known += 1
                table[slot] = known
                codes[i] = known - 1
                break
            if key_hashes[entry - 1] == h:
                b = ends[entry - 2] if entry > 1 else 0
                same = ends[entry - 1] - b == n
                if same:
                    for j in range(n):
                        if arena[b + j] != data[a + j]:
                            same = False
                            break
                if same:
                    codes[i] = entry - 1
                    break
            slot = (slot + 1) & mask
    return offsets.shape[0] - 1, known


@kernel
def refill(table: Array, hashes: Array, known: int) -> None:
    """Rebuild an empty probe table (int32, power of two) from the hashes of codes 0..known-1."""
    mask = table.shape[0] - 1
    for code in range(known):
        slot = np.int64(hashes[code] & U8(mask))
        while table[slot] != 0:
            slot = (slot + 1) & mask
        table[slot] = code + 1
