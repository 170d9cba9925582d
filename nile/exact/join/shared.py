"""Which tuples of several streams have keys that all have: where few have, the rest is spared coding and look-ups."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from nile.exact.state.lent import lent

__all__ = ["in_all", "run_shared", "texts_in_all"]

Array = np.ndarray[Any, Any]
_BITS = 4  # a tuple, of hashed keys
_SAMPLED = 1024
"""Tuples looked at for whether their keys are in both streams."""
_BYTES = 24
"""Bytes of a text that are looked at."""
_FEW = 0.5
"""Of the texts, up to which the rest is worth to be left out."""
# Drawn anew by each process: whoever chooses the keys cannot choose which are taken for each other.
_FACTORS = np.frombuffer(os.urandom(8 * (_BYTES + 1)), np.uint64) | np.uint64(1)


def _kernels() -> Any:
    return importlib.import_module("nile.exact.join.shared_kernels")


def in_all(codes: Sequence[Array], keys: int, many: float = 0.8) -> tuple[Array, ...] | None:
    """Which tuples of each stream have a key that all others have too: int64 each; None where more than `many` have.

    codes: int64 [n_k], below 0 for null; keys: a number above every code.
    By a bit a key, or of keys far apart by a bit of their hash, which now and then keeps one that another has not.
    Two bits are looked at for a tuple, where coding, listing and looking it up touch several lines of memory.
    """
    if min(each.shape[0] for each in codes) < _SAMPLED:
        return None
    kernels, factor = _kernels(), int(_FACTORS[0])
    bits = (_BITS * sum(each.shape[0] for each in codes)).bit_length()
    how = (64 if keys <= 1 << bits else 64 - bits, factor)
    marks = np.zeros((min(keys, 1 << bits) >> 6) + 1, np.uint64)
    kept: list[Array] = []
    # Down to the first, each stream keeps what the one above kept: what is left there is in all.
    rest = codes[-1]
    for each in codes[-2::-1]:
        kernels.mark_keys(rest, marks, *how)
        places = np.empty(each.shape[0] + 1, np.int64)
        step = each.shape[0] // _SAMPLED
        if rest is codes[-1] and kernels.marked_places(each, marks, *how, step, places) > many * _SAMPLED:
            return None
        kept = [places[: kernels.marked_places(each, marks, *how, 1, places)]]
        rest = each[kept[0]]
        marks[:] = 0
    kernels.mark_keys(rest, marks, *how)
    for each in codes[1:]:
        places = np.empty(each.shape[0] + 1, np.int64)
        kept.append(places[: kernels.marked_places(each, marks, *how, 1, places)])
    return tuple(kept)


def run_shared(
    run: Callable[[Sequence[Array], Sequence[Array]], Iterator[Array]], ts: Sequence[Array], codes: Sequence[Array]
) -> Iterator[Array]:
    """What a join of whole streams yields, int64 [m, n] ordinals, run over those tuples alone that have a key of all.

    run: takes times and codes of each stream; ts: int64 [n_k] ns; codes: int64 [n_k], below 0 for null.
    """
    places = in_all(codes, 1 + max(int(each.max(initial=-1)) for each in codes))
    if places is None:
        yield from run(ts, codes)
        return
    kept = [[each[at] for each, at in zip(every, places, strict=True)] for every in (ts, codes)]
    for block in run(*kept):
        yield np.stack([at[block[:, k]] for k, at in enumerate(places)]).T


def texts_in_all(columns: Sequence[Any]) -> tuple[Array, ...] | None:
    """As `in_all`, of Arrow columns of text or bytes of one type, by their lengths and last 24 bytes."""
    if min(map(len, columns)) < _SAMPLED:
        return None
    return in_all([_words(column) for column in columns], 1 << 63, _FEW)


def _words(column: Any) -> Array:
    _, offsets, data = column.buffers()
    wide = np.int64 if str(column.type).startswith("large") else np.int32
    ends = np.frombuffer(offsets, wide)[column.offset : column.offset + len(column) + 1]
    given = lent(np.frombuffer(data, np.uint8)) if data is not None and data.size else np.zeros(1, np.uint8)
    valid = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else np.zeros(0, np.bool_)
    words = np.empty(len(column), np.int64)
    _kernels().text_words(given, lent(ends), lent(valid), _FACTORS, words)
    return words
