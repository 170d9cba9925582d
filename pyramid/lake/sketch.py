"""What is known of a file of the lake without reading it: counts of its keys, times and sizes of its row groups.

A file's keys are counted in LANES sketches, one for each stretch of equal length of the key's hash (so of its
buckets), because a reader takes a file by ranges of buckets.  Sketches of one lane of several files add up, and two
of them multiply: the sum over a row's cells of the products is at least the number of pairs of equal keys, and that of
the signed counters estimates it.  They are made once, and kept beside the files:

    <root>/<stream>/_sketches/day=2011-12-09~part-0000-0fff-17.parquet.sketch

Source: Alon, Gibbons, Matias, Szegedy, PODS 1999 (sizes of joins from sketches); Cormode, Muthukrishnan, J. Algorithms
2005 (the bound); promising tuples, sections 3.2 and 3.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.pyramid.lake.key_sketch import LEVELS, ROWS, Counting, IndexSketch, cells_for
from nile.pyramid.lake.part import TS, Part, PartFile
from nile.summaries.envelope import pack, unpack
from nile.summaries.errors import EnvelopeError
from nile.summaries.hashing import KeyTable
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.pyramid.lake import kernels
    from nile.pyramid.lake.lake import LakeStream
else:
    kernels = lazy("nile.pyramid.lake.kernels")

__all__ = [
    "LANES",
    "PartSketch",
    "asked_products",
    "groups_in",
    "keep_sketch",
    "kept_sketch",
    "lane_of",
    "products",
    "rare_products",
    "sketch_part",
]

Array = np.ndarray[Any, Any]

LANES = 64
MOST_CELLS = 1 << 12
"""Counters a row and lane at most: 786 KB a file."""
SKETCHES = "_sketches"
LENGTHS = np.int64(1) << np.arange(20, 50)
"""Intervals, ns, in which tuples are counted: from a millisecond to six days."""
_SHIFT = np.uint64(64 - 6)
_KIND = "lake sketch"
_COUNTS = LEVELS.astype(np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class PartSketch:
    """Of one file, by one key.

    codes: uint8 [LANES, ROWS, cells], counters of `nile.pyramid.lake.key_sketch`, of keys that are not null.  rows:
    int64 [LANES], exact, null keys (which hash to 0) in lane 0.  peaks: int64 [LANES, len(LENGTHS)], the most tuples
    of a lane in any closed interval of that length.  since, until: int64 [groups], event times of each row group, ns,
    ends inside.  columns: of the file.  sizes: int64 [groups, columns], bytes, of each column chunk.
    """

    codes: Array
    rows: Array
    peaks: Array
    since: Array
    until: Array
    columns: tuple[str, ...]
    sizes: Array

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(sum(each.nbytes for each in (self.codes, self.rows, self.peaks, self.since, self.until, self.sizes)))

    def counts(self, cells: int) -> Array:
        """The counters of every lane, float64 [LANES, ROWS, cells], added up to `cells` a row (at most as made)."""
        made: Array = _COUNTS[self.codes]
        while made.shape[2] > cells:  # a cell is the leading bits of a product, so neighbours are one cell of half
            made = made[:, :, 0::2] + made[:, :, 1::2]
        return made

    def within(self, length: int | None) -> Array:
        """The most tuples of each lane in any closed interval of this length (ns; None: any): int64 [LANES]."""
        at = len(LENGTHS) if length is None else int(np.searchsorted(LENGTHS, length))
        return self.rows if at == len(LENGTHS) else self.peaks[:, at]

    def packed(self, part: Part, key: str) -> bytes:
        """As bytes with a checksum, of this very file."""
        arrays = {name: getattr(self, name) for name in ("codes", "rows", "peaks", "since", "until", "sizes")}
        return pack(_KIND, {"footer": part.footer_digest, "key": key, "columns": list(self.columns)}, arrays)

    @classmethod
    def unpacked(cls, data: bytes, part: Part, key: str, *, where: str) -> PartSketch:
        """The inverse.  Raises EnvelopeError for bytes that are none, or of another file or key."""
        envelope = unpack(data, where=where)
        params = envelope.params
        if envelope.kind != _KIND or params.get("footer") != part.footer_digest or params.get("key") != key:
            envelope.refuse(f"the sketch of {part.name} by '{key}'", "that of something else")
        groups, columns = len(part.group_rows), part.digests.shape[1]
        names = tuple(str(name) for name in params["columns"])
        codes = envelope.array("codes", "|u1", (LANES, ROWS, None))
        if len(names) != columns or codes.shape[2] & (codes.shape[2] - 1):
            envelope.refuse(f"{columns} columns and cells that are a power of two", f"{len(names)}, {codes.shape[2]}")
        return cls(
            codes,
            envelope.array("rows", "<i8", (LANES,)),
            envelope.array("peaks", "<i8", (LANES, len(LENGTHS))),
            envelope.array("since", "<i8", (groups,)),
            envelope.array("until", "<i8", (groups,)),
            names,
            envelope.array("sizes", "<i8", (groups, columns)),
        )


def sketch_part(file: PartFile, key: str) -> PartSketch:
    """What is to be known of a file.  Reads its times and the column `key`; about 2 million rows per second.

    Raises StoreCorrupt, KeyError, KeyTypeError.
    """
    table = KeyTable()
    read = file.read([TS, key])
    encoded = table.encode(read.column(key), where=f"{file.path}: '{key}'")
    counts = np.bincount(encoded.codes[encoded.codes >= 0], minlength=table.known).astype(np.int64)
    hashes = table.hashes()
    lanes = lane_of(hashes)
    order = np.argsort(lanes, kind="stable")
    edges = np.searchsorted(lanes[order], np.arange(LANES + 1))
    cells = min(MOST_CELLS, cells_for(int(np.diff(edges).max())))
    codes = np.zeros((LANES, ROWS, cells), np.uint8)
    for lane in range(LANES):
        mine = order[edges[lane] : edges[lane + 1]]
        if len(mine):
            counting = Counting(cells)
            counting.add(hashes[mine], counts[mine])
            codes[lane] = counting.sketch().codes
    ts = read.column(TS).to_numpy()
    lane_of_row = lane_of(encoded.hashes)
    rows = np.bincount(lane_of_row, minlength=LANES).astype(np.int64)
    peaks = np.zeros((LANES, len(LENGTHS)), np.int64)
    by_lane = np.lexsort((ts, lane_of_row))
    kernels.peaks(ts[by_lane], np.concatenate([np.zeros(1, np.int64), np.cumsum(rows)]), LENGTHS, peaks)
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(file.part.group_rows)[:-1]])
    groups = range(len(file.part.group_rows))
    return PartSketch(
        codes,
        rows,
        peaks,
        np.minimum.reduceat(ts, starts),
        np.maximum.reduceat(ts, starts),
        file.columns,
        np.array([[file.bytes_of([g], [name]) for name in file.columns] for g in groups], np.int64),
    )


def lane_of(hashes: Array) -> Array:
    """The lane of each key, of its hash: int64 [n]."""
    lanes: Array = (hashes >> _SHIFT).astype(np.int64)
    return lanes


def asked_products(sketches: Sequence[PartSketch], hashes: Array) -> tuple[Array, Array]:
    """(about how many, at most how many) combinations of tuples of some keys there are in each lane: float64 [LANES].

    sketches: one per side; hashes: uint64 [k], of different keys.
    """
    lanes = lane_of(hashes)
    few, most = np.ones(len(hashes)), np.ones(len(hashes))
    for sketch in sketches:
        for lane in np.unique(lanes).tolist():
            mine = lanes == lane
            estimate, upper = IndexSketch(sketch.codes[lane]).bounds(hashes[mine])
            few[mine] *= estimate
            most[mine] *= upper
    return np.bincount(lanes, few, LANES), np.bincount(lanes, most, LANES)


def products(left: PartSketch, right: PartSketch) -> tuple[Array, Array]:
    """(about how many pairs of equal keys there are, at most how many, for certain) in each lane: float64 [LANES].

    The estimate is the median over rows of the products of the signed counters, cut to [0, bound].
    """
    cells = min(left.codes.shape[2], right.codes.shape[2])
    one, other = left.counts(cells), right.counts(cells)
    bound = np.einsum("lrc,lrc->lr", one, other).min(axis=1)
    signed = np.einsum("lrc,lrc->lr", one[:, :, 0::2] - one[:, :, 1::2], other[:, :, 0::2] - other[:, :, 1::2])
    return np.clip(np.median(signed, axis=1), 0.0, bound), bound


def rare_products(left: PartSketch, right: PartSketch, cap: int, share: float) -> Array:
    """About how many pairs are of keys with at most `cap` tuples in a window, in each lane: float64 [LANES].

    share: of the files' time that a window covers, 0 to 1.  Of the other tuples of a pair's cell each is inside the
    window with this probability, so their number is taken for Poisson (certain where `share` is 1).
    """
    cells = min(left.codes.shape[2], right.codes.shape[2])
    one, other = left.counts(cells), right.counts(cells)
    mean = np.maximum(one + other - 2.0, 0.0) * share
    if share >= 1.0:
        rare = (mean <= cap - 2).astype(np.float64)
    else:
        term = np.exp(-mean)
        rare = term.copy()
        for k in range(1, cap - 1):
            term *= mean / k
            rare += term
        rare *= cap >= 2
    made: Array = np.median((one * other * rare).sum(axis=2), axis=1)
    return made


def kept_sketch(stream: LakeStream, part: Part) -> PartSketch | None:
    """The sketch that is kept of a file of a stream, by the column it is clustered by; None where there is none.

    One that is altered, or of another file that had this name, counts as none: it can be made again.
    """
    path = _path_of(stream, part)
    try:
        return PartSketch.unpacked(path.read_bytes(), part, stream.layout.key, where=str(path))
    except (OSError, EnvelopeError, KeyError, TypeError):
        return None


def keep_sketch(stream: LakeStream, part: Part, sketch: PartSketch) -> bool:
    """Keeps the sketch of a file beside it; False where the lake cannot be written."""
    path = _path_of(stream, part)
    draft = path.with_suffix(".draft")
    try:
        path.parent.mkdir(exist_ok=True)
        draft.write_bytes(sketch.packed(part, stream.layout.key))
        draft.replace(path)
    except OSError:
        return False
    return True


def _path_of(stream: LakeStream, part: Part) -> Path:
    return stream.path / SKETCHES / (part.name.replace("/", "~") + ".sketch")


def groups_in(
    part: Part, sketch: PartSketch, low: int, high: int, since: int | None, until: int | None
) -> Sequence[int]:
    """The row groups that may hold rows of the buckets [low, high] and times [since, until] (ns)."""
    keep = (part.group_high >= low) & (part.group_low <= high)
    if since is not None:
        keep &= sketch.until >= since
    if until is not None:
        keep &= sketch.since <= until
    return [int(group) for group in np.flatnonzero(keep)]
