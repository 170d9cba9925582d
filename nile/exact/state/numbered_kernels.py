"""Texts in a hash table by their bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.exact.state.kernels import kernel, part

Array = np.ndarray[Any, Any]


@part
def hashed_bytes(data: Array, first: int, last: int) -> int:
    """A 64-bit hash of bytes first to last - 1 (multiply and shift, eight at a time); never negative."""
    h = np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(last - first)
    at = first
    while at < last:
        word = np.uint64(0)
        end = min(at + 8, last)
        shift = np.uint64(0)
        while at < end:
            word |= np.uint64(data[at]) << shift
            shift += np.uint64(8)
            at += 1
        h ^= word
        h *= np.uint64(0xFF51AFD7ED558CCD)
        h ^= h >> np.uint64(32)
    h *= np.uint64(0xC4CEB9FE1A85EC53)
    h ^= h >> np.uint64(29)
    return int(h >> np.uint64(1))


@kernel
def find_texts(
    offsets: Array, data: Array, held_offsets: Array, held: Array, held_hashes: Array, index: Array, hashes: Array,
    numbers: Array,
) -> None:  # fmt: skip
    """numbers[i]: the number of text i among those held, or -1; hashes[i]: its hash.

    offsets: int64 [n + 1] into data, uint8; index: int64 [power of two], number + 1 or 0, not full.
    """
    mask = index.shape[0] - 1
    for i in range(offsets.shape[0] - 1):
        first = offsets[i]
        size = offsets[i + 1] - first
        h = hashed_bytes(data, first, first + size)
        hashes[i] = h
        numbers[i] = -1
        at = h & mask
        while index[at] != 0:
            seen = index[at] - 1
            if held_hashes[seen] == h and held_offsets[seen + 1] - held_offsets[seen] == size:
                begin = held_offsets[seen]
                same = True
                for k in range(size):
                    if held[begin + k] != data[first + k]:
                        same = False
                        break
                if same:
                    numbers[i] = seen
                    break
            at = (at + 1) & mask


@kernel
def index_texts(hashes: Array, index: Array, first: int) -> None:
    """Put the numbers from `first` on into an index that has room."""
    mask = index.shape[0] - 1
    for number in range(first, hashes.shape[0]):
        at = hashes[number] & mask
        while index[at] != 0:
            at = (at + 1) & mask
        index[at] = number + 1
