"""Rows as words in a hash table that gives each different row a small number, and the merging of signed inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.exact.state.kernels import fetch, inlined, kernel, look, part

Array = np.ndarray[Any, Any]

# meta of a table: int64 [3]
USED = 0  # codes ever given, free ones included
FREE = 1  # length of the stack of free codes
LIVE = 2  # codes in use

AT_ONCE = 64
"""Rows whose places are asked for before the first of them is looked up."""


@part
def hashed(words: Array, row: int) -> int:
    """A 64-bit hash of one row of words (multiply and shift, each word in turn); never negative."""
    h = np.uint64(0x9E3779B97F4A7C15)
    for c in range(words.shape[1]):
        h ^= np.uint64(words[row, c])
        h *= np.uint64(0xFF51AFD7ED558CCD)
        h ^= h >> np.uint64(32)
        h *= np.uint64(0xC4CEB9FE1A85EC53)
        h ^= h >> np.uint64(29)
    return int(h >> np.uint64(1))


@part
def found(words: Array, row: int, h: int, index: Array, kept: Array, hashes: Array) -> tuple[int, int]:
    """(the code of a row of words with this hash, -1: none; the place in the index where the search ended)."""
    mask = index.shape[0] - 1
    at = h & mask
    while index[at] != 0:
        seen = index[at] - 1
        if hashes[seen] == h:
            same = True
            for c in range(words.shape[1]):
                if kept[seen, c] != words[row, c]:
                    same = False
                    break
            if same:
                return seen, at
        at = (at + 1) & mask
    return -1, at


@inlined
def repeated(words: Array, row: int) -> bool:
    """Whether a row of words is the one before it again, as that of pairs of one tuple of a join often is."""
    same = True
    for c in range(words.shape[1]):
        same = same and words[row, c] == words[row - 1, c]
    return same


@inlined
def hash_ahead(words: Array, begin: int, end: int, codes: Array, index: Array, kept: Array, hashes: Array) -> None:
    """codes[i]: the hash of row i, whose place in a table is asked for ahead of when it is looked up."""
    mask = index.shape[0] - 1
    for i in range(begin, end):
        codes[i] = hashed(words, i)
        look(index, codes[i] & mask)
    for i in range(begin, end):
        seen = index[codes[i] & mask] - 1
        if seen >= 0:
            look(hashes, seen)
            look(kept, seen)


@part
def interned(words: Array, row: int, h: int, index: Array, kept: Array, hashes: Array, free: Array, meta: Array) -> int:
    """The code of one row with this hash, -1: it is new, and there is no room.  As `intern_words`."""
    code, at = found(words, row, h, index, kept, hashes)
    if code < 0:
        if meta[LIVE] >= index.shape[0] // 2 or (meta[FREE] == 0 and meta[USED] == kept.shape[0]):
            return -1
        if meta[FREE] > 0:
            meta[FREE] -= 1
            code = free[meta[FREE]]
        else:
            code = meta[USED]
            meta[USED] += 1
        meta[LIVE] += 1
        for c in range(words.shape[1]):
            kept[code, c] = words[row, c]
        hashes[code] = h
        index[at] = code + 1
    return int(code)


@kernel
def intern_words(
    words: Array, start: int, codes: Array, index: Array, kept: Array, hashes: Array, free: Array, meta: Array
) -> int:
    """codes[i]: the code of row i of words, a new one for a new row; returns the first row that found no room.

    words, kept: int64 [n, w], [capacity, w]; index: int64 [power of two], code + 1 or 0; hashes: int64 [capacity];
    free: int64 [capacity], a stack; meta: as above.  Room ends when kept is full or the index more than half full.
    """
    for some in range(start, words.shape[0], AT_ONCE):
        end = min(some + AT_ONCE, words.shape[0])
        hash_ahead(words, some, end, codes, index, kept, hashes)
        for i in range(some, end):
            if i > start and repeated(words, i):
                codes[i] = codes[i - 1]
                continue
            code = interned(words, i, codes[i], index, kept, hashes, free, meta)
            if code < 0:
                return i
            codes[i] = code
    return len(words)


@kernel
def find_words(words: Array, codes: Array, index: Array, kept: Array, hashes: Array) -> None:
    """codes[i]: the code of row i of words, or ~ its hash, which is below 0: it has none yet.  As `intern_words`."""
    for some in range(0, words.shape[0], AT_ONCE):
        end = min(some + AT_ONCE, words.shape[0])
        hash_ahead(words, some, end, codes, index, kept, hashes)
        for i in range(some, end):
            if i > 0 and repeated(words, i):
                codes[i] = codes[i - 1]
                continue
            h = codes[i]
            code, _ = found(words, i, h, index, kept, hashes)
            codes[i] = code if code >= 0 else ~h


@kernel
def intern_between(
    low: int, high: int, words: Array, rows: Array, codes: Array, given: Array, used: int, index: Array, kept: Array,
    hashes: Array,
) -> int:  # fmt: skip
    """As `intern_words` of rows that `find_words` did not find, for those whose search begins and ends in a part of the
    index, [low, high): other threads may work on other parts.  Returns how many of the codes given are used.

    words: int64 [m, w]; rows: int64 [m], which of codes theirs are: ~ hash, which those keep that end beyond, or come
    when all that is given is used; given: int64 [many], new codes.
    """
    mask = index.shape[0] - 1
    for some in range(0, rows.shape[0], AT_ONCE):
        end = min(some + AT_ONCE, rows.shape[0])
        for i in range(some, end):
            fetch(index, ~codes[rows[i]] & mask)
        for i in range(some, end):
            h = ~codes[rows[i]]
            at = h & mask
            if h < 0 or at < low or at >= high:
                continue
            code = np.int64(-1)
            while at < high and index[at] != 0 and code < 0:
                seen = index[at] - 1
                if hashes[seen] == h:
                    same = True
                    for c in range(words.shape[1]):
                        same &= kept[seen, c] == words[i, c]
                    code = seen if same else code
                at += 1
            if code < 0 and at < high and used < given.shape[0]:
                code = given[used]
                used += 1
                for c in range(words.shape[1]):
                    kept[code, c] = words[i, c]
                hashes[code] = h
                index[at] = code + 1
            if code >= 0:
                codes[rows[i]] = code
    return used


@kernel
def build_index(index: Array, kept: Array, hashes: Array, used: int, again: bool) -> None:
    """Fill an empty index with the codes below `used` that are in use (hash >= 0); again: hash their words anew."""
    mask = index.shape[0] - 1
    for code in range(used):
        if hashes[code] < 0:
            continue
        if again:
            hashes[code] = hashed(kept, code)
        at = hashes[code] & mask
        while index[at] != 0:
            at = (at + 1) & mask
        index[at] = code + 1


@part
def release_code(code: int, index: Array, hashes: Array, free: Array, meta: Array) -> None:
    """Forget one, if it is known."""
    if hashes[code] < 0:
        return
    mask = index.shape[0] - 1
    at = hashes[code] & mask
    while index[at] != code + 1:
        at = (at + 1) & mask
    hashes[code] = -1
    free[meta[FREE]] = code
    meta[FREE] += 1
    meta[LIVE] -= 1
    take_out(at, index, hashes)


@part
def take_out(at: int, index: Array, hashes: Array) -> None:
    """Take a place out of the index.  Linear probing, shifted back."""
    mask = index.shape[0] - 1
    hole = at
    while True:
        at = (at + 1) & mask
        if index[at] == 0:
            break
        home = hashes[index[at] - 1] & mask
        if ((at - home) & mask) >= ((at - hole) & mask):
            index[hole] = index[at]
            hole = at
    index[hole] = 0


@kernel
def release_codes(codes: Array, index: Array, hashes: Array, free: Array, meta: Array) -> None:
    """Forget `codes` (repeats allowed)."""
    mask = index.shape[0] - 1
    for some in range(0, codes.shape[0], AT_ONCE):
        end = min(some + AT_ONCE, codes.shape[0])
        for i in range(some, end):
            fetch(hashes, codes[i])
        for i in range(some, end):
            fetch(index, hashes[codes[i]] & mask)
        for i in range(some, end):
            release_code(codes[i], index, hashes, free, meta)


@kernel
def release_between(low: int, high: int, codes: Array, index: Array, hashes: Array, out: Array) -> tuple[int, int]:
    """As `release_codes`, for those whose search begins in a part of the index, [low, high): other threads may work on
    other parts.  Into out, int64 [n], from the front on those that are forgotten, which are not free yet, and from
    the end on those that are not, since what is behind them goes on beyond; how many of both."""
    mask = index.shape[0] - 1
    many = 0
    left = 0
    for some in range(0, codes.shape[0], AT_ONCE):
        end = min(some + AT_ONCE, codes.shape[0])
        for i in range(some, end):
            look(hashes, codes[i])
        for i in range(some, end):
            fetch(index, hashes[codes[i]] & mask)
        for i in range(some, end):
            code = codes[i]
            h = hashes[code]
            at = h & mask
            if h < 0 or at < low or at >= high:
                continue
            while at < high and index[at] != code + 1:
                at += 1
            behind = at
            while behind < high and index[behind] != 0:
                behind += 1
            if behind == high:
                left += 1
                out[out.shape[0] - left] = code
                continue
            hashes[code] = -1
            out[many] = code
            many += 1
            take_out(at, index, hashes)
    return many, left


@kernel
def laid(head: Array, ts: Array, sign: Array, stamps: int, words: Array, places: Array, out: Array) -> None:
    """A message of Arrow's: its head, then columns one after the other, each from a whole word on.

    head: int64 [h]; ts int64 [n], sign int8 [n]: the first columns, as many of them as `stamps` says; words: int64 [w,
    room], the other columns are its rows `places`; out: int64 [all].
    """
    at = head.shape[0]
    n = ts.shape[0]
    for i in range(at):
        out[i] = head[i]
    if stamps > 0:
        for i in range(n):
            out[at + i] = ts[i]
        at += n
    if stamps > 1:
        for i in range((n + 7) // 8):
            out[at + i] = 0
        for i in range(n):
            out[at + (i >> 3)] |= (np.int64(sign[i]) & 255) << (8 * (i & 7))
        at += (n + 7) // 8
    for c in range(places.shape[0]):
        for i in range(n):
            out[at + i] = words[places[c], i]
        at += n


@kernel
def merge_order(a_ts: Array, a_sign: Array, b_ts: Array, b_sign: Array, by_sign: bool, order: Array) -> None:
    """order[k]: which entry of a then b is k-th by time, then (by_sign) what goes first, then a before b."""
    n = a_ts.shape[0]
    m = b_ts.shape[0]
    i = 0
    j = 0
    for k in range(n + m):
        if j == m:
            first = True
        elif i == n:
            first = False
        elif a_ts[i] != b_ts[j]:
            first = a_ts[i] < b_ts[j]
        elif by_sign:
            first = a_sign[i] < 0 or b_sign[j] > 0
        else:
            first = True
        if first:
            order[k] = i
            i += 1
        else:
            order[k] = n + j
            j += 1
