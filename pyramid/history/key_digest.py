"""What an index tells of its keys before its directory is read: two bytes a key, a piece of its hash and a level.

The keys lie in the directory's order, ascending by hash, in spans of 16 to 32: a span is the first bits of a hash, and
each key has the next 11 and the level of its tuples, one of 32.  So an absent key is ruled out but for one in 64 at
most, and of a present one is told about how many tuples it has; the most of a level is certain.  Levels are chosen for
the index: the lowest counts each have one, the rest are alike in ratio.
Source: promising tuples, section 3.2 (what a cell's summary is for); the layout is a quotient filter's (Bender et al.,
VLDB 2012) without its slots, as an index never changes.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.pyramid.history.pages import PageFile
from nile.pyramid.lake.key_sketch import LEVELS, MOST_CELLS, ROWS, IndexSketch
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.pyramid.history import key_kernels
    from nile.pyramid.lake import key_sketch_kernels
else:
    key_kernels = lazy("nile.pyramid.history.key_kernels")
    key_sketch_kernels = lazy("nile.pyramid.lake.key_sketch_kernels")

__all__ = ["Digesting", "KeyDigest", "StoredSummary", "distinct", "edges_of"]

Array = np.ndarray[Any, Any]

BITS = 11
"""Of a hash, beside those that its span is."""
CLASSES = 32
"""Levels: what the other bits of two bytes tell apart."""
ALONE = 4
"""Counts up to it have a level each: the outliers of a query are told by them (`outlier_cap`)."""
_LEAST_IN_A_SPAN = 16


def distinct(ascending: Array) -> int:
    """How many different hashes there are among ascending ones (uint64 [k])."""
    return int(np.count_nonzero(ascending[1:] != ascending[:-1])) + int(ascending.shape[0] > 0)


def edges_of(hashes: Array, spans: int) -> Array:
    """How many of the ascending hashes (uint64 [k]) lie before each span, a power of two: int64 [spans + 1]."""
    edges = np.empty(spans + 1, np.int64)
    edges[0], edges[-1] = 0, hashes.shape[0]
    if spans > 1:
        lowest = np.arange(1, spans, dtype=np.uint64) << np.uint64(65 - spans.bit_length())
        edges[1:-1] = np.searchsorted(hashes, lowest, side="left")
    return edges


class KeyDigest:
    """The digest of an index's keys.

    edges: uint32 [spans + 1], keys before each span; codes: uint16 [k], the piece of a hash and the level; most, about:
    int64 [CLASSES], of the tuples of a key of each level the certain bound and the mean.
    """

    __slots__ = ("about", "codes", "edges", "most")

    def __init__(self, edges: Array, codes: Array, most: Array, about: Array) -> None:
        self.edges = edges
        self.codes = codes
        self.most = most
        self.about = about

    @classmethod
    def of(cls, hashes: Array, counts: Array) -> KeyDigest:
        """That of keys (uint64 [k], ascending) that come counts (int64 [k]) times each."""
        digesting = Digesting(distinct(hashes))
        digesting.add(hashes, counts)
        return digesting.digest()

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return int(self.edges.nbytes + self.codes.nbytes + self.most.nbytes + self.about.nbytes)

    def bounds(self, hashes: Array) -> tuple[Array, Array]:
        """(estimate, upper) of the tuples of each key (uint64 [n]): int64 [n] each.  Two reads a key.

        upper: at most so many, for certain; estimate: about so many, 0 to `upper`.
        """
        estimate, upper = np.empty(hashes.shape[0], np.int64), np.empty(hashes.shape[0], np.int64)
        key_kernels.digest_bounds(self.edges, self.codes, self.most, self.about, BITS, hashes, estimate, upper)
        return estimate, upper

    def page(self) -> bytes:
        """Its page: spans, then keys."""
        return self.edges.astype("<u4").tobytes() + self.codes.astype("<u2").tobytes()

    def told(self, page: int) -> tuple[dict[str, Any], dict[str, Array]]:
        """What the footer says of it, whose page has this number: parameters and arrays."""
        return {"digest": page, "spans": self.edges.shape[0] - 1}, {"most": self.most, "about": self.about}


class Digesting:
    """A digest in the making: 3 bytes a key."""

    def __init__(self, keys: int) -> None:
        """keys: about how many will come."""
        self._spans = 1 << max(0, (keys // _LEAST_IN_A_SPAN).bit_length() - 1)
        self._edges = np.zeros(self._spans + 1, np.int64)
        self._pieces: list[Array] = []
        self._levels: list[Array] = []
        self._keys, self._tuples = np.zeros(LEVELS.shape[0], np.int64), np.zeros(LEVELS.shape[0], np.int64)

    def add(self, hashes: Array, counts: Array) -> None:
        """More keys: uint64 [k], ascending and above those before, with counts (int64 [k], below 2**32) tuples each."""
        levels = np.empty(hashes.shape[0], np.uint8)
        key_sketch_kernels.level_codes(counts.astype(np.uint32), levels)
        self._edges += edges_of(hashes, self._spans)
        piece = (hashes << np.uint64(self._spans.bit_length() - 1)) >> np.uint64(64 - BITS)
        self._pieces.append(piece.astype(np.uint16))
        self._levels.append(levels)
        self._keys += np.bincount(levels, minlength=LEVELS.shape[0])
        self._tuples += np.bincount(levels, counts, LEVELS.shape[0]).astype(np.int64)

    def digest(self) -> KeyDigest:
        """The digest of all that came."""
        here = np.flatnonzero(self._keys)
        classes = _classes(LEVELS[here])
        most, keys, tuples = (np.zeros(CLASSES, np.int64) for _ in range(3))
        np.maximum.at(most, classes, LEVELS[here])
        np.add.at(keys, classes, self._keys[here])
        np.add.at(tuples, classes, self._tuples[here])
        class_of = np.zeros(LEVELS.shape[0], np.uint16)
        class_of[here] = classes
        none = np.zeros(0, np.uint16)
        pieces, levels = np.concatenate([none, *self._pieces]), np.concatenate([none, *self._levels]).astype(np.uint8)
        return KeyDigest(
            self._edges.astype(np.uint32), (pieces << np.uint16(16 - BITS)) | class_of[levels], most,
            (tuples + keys // 2) // np.maximum(keys, 1),
        )  # fmt: skip


def _classes(counts: Array) -> Array:
    """The class of each of some counts (int64 [n], ascending): int64 [n], rising from 0, below CLASSES."""
    for eighths in itertools.count():
        lowest: list[int] = []
        for count in counts.tolist():
            if not lowest or lowest[-1] <= ALONE or 8 * count > (8 + eighths) * lowest[-1]:
                lowest.append(count)
        if len(lowest) <= CLASSES:
            break
    return np.searchsorted(lowest, counts, side="right") - 1


class StoredSummary:
    """Where a file has the summary of an index: the digest, or the sketch that files of before version 3 have."""

    def __init__(self, pages: PageFile, keys: int, sketch: int | str) -> None:
        """sketch: the number of the sketch's page in old files, or the parameter that has it.  Raises EnvelopeError."""
        footer = pages.footer
        self._pages = pages
        self._keys = keys
        self._levels: tuple[Array, Array] | None = None
        if "digest" in footer.params:
            self.page = footer.integer("digest", 0, pages.pages - 1)
            self._wide = footer.integer("spans", 1, 1 << 32)
            self._levels = footer.array("most", "<i8", (CLASSES,)), footer.array("about", "<i8", (CLASSES,))
            if (self._levels[1] > self._levels[0]).any() or (self._levels[1] < 0).any():
                footer.refuse("levels of which none is above its bound", "another")
        else:
            self.page = sketch if isinstance(sketch, int) else footer.integer(sketch, 0, pages.pages)
            self._wide = footer.integer("cells", 1, MOST_CELLS)
        if self._wide & (self._wide - 1):
            footer.refuse("spans or cells as a power of two", f"{self._wide}")

    def read(self) -> KeyDigest | IndexSketch:
        """The summary.  Raises StoreCorrupt."""
        if self._levels is None:
            codes = self._pages.numbers(self.page, "|u1", ROWS * self._wide)
            return IndexSketch(codes.reshape(ROWS, self._wide))
        spans = 2 * (self._wide + 1)
        halves = self._pages.numbers(self.page, "<u2", spans + self._keys)
        edges = halves[:spans].view("<u4")
        if edges[0] != 0 or edges[-1] != self._keys or (edges[1:] < edges[:-1]).any():
            self._pages.corrupt("digest", f"spans that rise from 0 to {self._keys} keys", "others")
        return KeyDigest(edges, halves[spans:], *self._levels)
