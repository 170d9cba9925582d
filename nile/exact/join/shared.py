"""Which tuples of several streams have keys that all have: where few have, the rest is spared coding and look-ups."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from nile.exact.join.dense import dense_codes
from nile.exact.join.threads import pieces_of, together, useful
from nile.exact.state.lent import filled, lent, roomy, taken

__all__ = ["FACTORS", "Texts", "in_all", "kept_of", "run_shared", "taken_by", "text_codes"]

Array = np.ndarray[Any, Any]
_BITS = 4  # a tuple, of hashed keys, and of those told by a bit each: of more `in_all` knows a hash alone
_NEAR = 1 << 16
"""Codes whose rows stay in a near cache."""
_SAMPLED = 1024
"""Tuples looked at for whether their keys are in both streams."""
_TEXTS = 1 << 15
"""Texts a thread, below which starting it costs more than it saves: each takes several times what a number does."""
# Drawn anew by each process: whoever chooses the keys cannot choose which are taken for each other.
FACTORS = np.frombuffer(os.urandom(24), np.uint64) | np.uint64(1)


def _kernels() -> Any:
    return importlib.import_module("nile.exact.join.shared_kernels")


def taken_by(threads: int | None, array: Array, at: Array) -> Array:
    """The elements at some places, as of `taken`, by so many threads at most (None: all cores)."""
    pieces = pieces_of(at.shape[0], useful(threads, at.shape[0]))
    if len(pieces) == 1:
        return taken(array, at)
    out = roomy(at.shape[0], array.dtype)
    together([partial(np.take, array, at[own], out=out[own], mode="clip") for own in pieces])
    return out


def _text_kernels() -> Any:
    return importlib.import_module("nile.exact.join.text_kernels")


def in_all(
    codes: Sequence[Array], keys: int, many: float = 0.8, *, threads: int | None = 1
) -> tuple[Array, ...] | None:
    """Which tuples of each stream have a key that all others have too: int64 each; None where more than `many` have.

    codes: int64 [n_k], below 0 for null; keys: a number above every code; threads: how many may be used, None for all
    cores.  By a bit a key, or of keys far apart by a bit of their hash, which now and then keeps one that another has
    not.  Two bits are looked at for a tuple, where coding, listing and looking it up touch several lines of memory.
    """
    if min(each.shape[0] for each in codes) < _SAMPLED:
        return None
    kernels, factor = _kernels(), FACTORS[0]  # as Python's it would be one type or another, and compiled for both
    bits = (_BITS * sum(each.shape[0] for each in codes)).bit_length()
    how = (64 if keys <= 1 << bits else 64 - bits, factor)
    words = (min(keys, 1 << bits) >> 6) + 1

    def marked(code: Array) -> Array:
        pieces = pieces_of(code.shape[0], useful(threads, code.shape[0]))
        marks = np.zeros((len(pieces), words), np.uint64)
        together([partial(kernels.mark_keys, code[at], own, *how) for at, own in zip(pieces, marks, strict=True)])
        for own in marks[1:]:
            marks[0] |= own
        first: Array = marks[0]
        return first

    def places(code: Array, marks: Array) -> Array:
        pieces = pieces_of(code.shape[0], useful(threads, code.shape[0]))
        room = roomy(code.shape[0] + len(pieces))
        found = [0] * len(pieces)

        def look(k: int, at: slice) -> None:
            found[k] = kernels.marked_places(code[at], marks, *how, 1, at.start, room[at.start + k : at.stop + k + 1])

        together([partial(look, k, at) for k, at in enumerate(pieces)])
        end = found[0]
        for k, at in enumerate(pieces[1:], 1):
            room[end : end + found[k]] = room[at.start + k : at.start + k + found[k]]
            end += found[k]
        return room[:end]

    kept: list[Array] = []
    # Down to the first, each stream keeps what the one above kept: what is left there is in all.
    rest = codes[-1]
    for each in codes[-2::-1]:
        marks = marked(rest)
        step = each.shape[0] // _SAMPLED
        if rest is codes[-1]:
            looked_at = np.empty(each.shape[0] // step + 2, np.int64)
            if kernels.marked_places(each, marks, *how, step, 0, looked_at) > many * _SAMPLED:
                return None
        kept = [places(each, marks)]
        rest = taken_by(threads, each, kept[0])
    marks = marked(rest)
    return *kept, *(places(each, marks) for each in codes[1:])


def kept_of(
    codes: Sequence[Array], places: Sequence[Array], above: int, threads: int | None = 1
) -> tuple[tuple[Array, ...], int]:
    """The codes of those tuples that `in_all` keeps, without most of those between that none has any more.

    codes: int64 [n_k]; above: a number above every code; threads: as of `in_all`.  Returns (codes, a number above every
    one), in the same order: rows by code take less room and stay in a nearer cache.  By a bit a code: 3 ns a tuple that
    is kept; codes far apart, or so few that they are near anyway, stay as they are.
    """
    kept = tuple(taken_by(threads, each, at) for each, at in zip(codes, places, strict=True))
    if not _NEAR < above <= _BITS * sum(each.shape[0] for each in codes):
        return kept, above
    kernels = _kernels()
    marks = np.zeros((above >> 6) + 1, np.uint64)
    kernels.mark_keys(kept[0], marks, 64, FACTORS[0])
    before = np.empty(marks.shape[0], np.int32)
    found = kernels.add_up(marks, before)
    out = tuple(roomy(each.shape[0]) for each in kept)
    for each, rank in zip(kept, out, strict=True):
        pieces = pieces_of(each.shape[0], useful(threads, each.shape[0]))
        together([partial(kernels.ranks, each[own], marks, before, rank[own]) for own in pieces])
    return out, found


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


def text_codes(
    columns: Sequence[Any], *, shared: bool = False, threads: int | None = None
) -> tuple[tuple[Array, ...], int] | None:
    """Codes of Arrow columns of text or bytes of one type, equal exactly when the texts are, in the order in which they
    come: (codes of each, distinct).  None where texts have to be encoded otherwise.

    int64 [n] each, -1 for null; shared: also of texts that not all columns have, as they join with nothing.  By a hash
    of 63 bits, drawn anew by each process, after which every text is compared with the first of its code.
    threads: how many may be used, None for all cores.  Cost: 10 to 70 ns a text by how many are distinct.
    """
    texts = [Texts(column) for column in columns]
    words = [roomy(each.size) for each in texts]

    def hash_texts(k: int, at: slice) -> None:
        _text_kernels().text_words(*texts[k].piece(at), FACTORS, words[k][at])

    _in_pieces(words, threads, hash_texts)
    places = in_all(words, 1 << 63, threads=threads) if shared else None
    if places is not None:
        words = [taken(each, at) for each, at in zip(words, places, strict=True)]
    codes, distinct = dense_codes(words, shared=shared, threads=threads, over=True)
    at = tuple(np.arange(each.size) for each in texts) if places is None else places
    if not _alike(codes, at, texts, distinct, shared, threads):
        return None
    if places is None:
        return codes, distinct
    spread = tuple(filled(each.size, -1) for each in texts)
    for own, place, code in zip(spread, places, codes, strict=True):
        own[place] = code
    return spread, distinct


def _alike(
    codes: Sequence[Array], places: Sequence[Array], texts: Sequence[Texts], distinct: int, shared: bool,
    threads: int | None,
) -> bool:  # fmt: skip
    """Whether all texts of a code are one text.  places: which texts of a column the codes are of; shared: whether the
    shortest column has all codes, else they rise from column to column."""
    firsts: list[tuple[int, Array]] = []
    known = 0  # codes below it have their first text in a column before
    for k in sorted(range(len(codes)), key=lambda k: codes[k].shape[0] if shared else k):
        above = 1 + int(codes[k].max(initial=-1))
        if above > known:
            first = filled(2 * distinct, -1).reshape(distinct, 2)
            _text_kernels().first_texts(codes[k], places[k], texts[k].ends, known, first)
            firsts.append((k, first))
            known = above
    unlike: list[int] = []

    def compare(k: int, at: slice) -> None:
        given = codes[k][at], places[k][at], texts[k].data, texts[k].ends
        unlike.extend(_text_kernels().unlike_texts(*given, own, texts[other].data) for other, own in firsts)

    _in_pieces(codes, threads, compare)
    return not any(unlike)


def _in_pieces(columns: Sequence[Array], threads: int | None, call: Callable[[int, slice], Any]) -> None:
    """Call for every piece of every column, on as many threads at once as are worth it, a piece of each for each."""
    count = useful(threads, sum(each.shape[0] for each in columns), _TEXTS)
    pieces = [pieces_of(each.shape[0], count) for each in columns]

    def some(lane: int) -> None:
        for k, own in enumerate(pieces):
            call(k, own[lane])

    together([partial(some, lane) for lane in range(count)])


class Texts:
    """The memory of an Arrow column of text or bytes.  data: uint8; ends: int [size + 1], where texts begin and end."""

    def __init__(self, column: Any) -> None:
        self.size = len(column)
        _, offsets, data = column.buffers()
        wide = np.int64 if str(column.type).startswith("large") else np.int32
        ends = np.frombuffer(offsets, wide) if len(column) else np.zeros(column.offset + 1, wide)
        self.ends = lent(ends[column.offset : column.offset + len(column) + 1])
        self.data = lent(np.frombuffer(data, np.uint8)) if data is not None and data.size else np.zeros(1, np.uint8)
        valid = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else np.zeros(0, np.bool_)
        self.valid = lent(valid)

    def piece(self, at: slice) -> tuple[Array, Array, Array]:
        """(data, ends, valid) of some of the texts."""
        return self.data, self.ends[at.start : at.stop + 1], self.valid[at] if self.valid.shape[0] else self.valid
