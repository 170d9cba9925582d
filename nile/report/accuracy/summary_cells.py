"""Where a summary was wrong: what its cells tell of each key, against how many tuples there are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.spec import SummarySpec
from nile.pyramid.grid.zone import Zone
from nile.report.accuracy.short_values import key_text
from nile.report.pages.heatmap import cell_picture, moment, per_second
from nile.report.pages.markup import Markup, element
from nile.report.pages.tables import folded, table
from nile.report.wording import grouped_digits, percent, plain_number
from nile.summaries.hashing import Encoded, KeyTable

if TYPE_CHECKING:
    from nile.operators.inputs.joining import Loaded

__all__ = ["CellErrors", "WrongCell", "cell_errors"]

Array = np.ndarray[Any, Any]
WORST = 12
"""Cells that are listed in words."""


@dataclass(frozen=True, slots=True)
class WrongCell:
    """One cell and the key it is furthest off about.

    first, last: of its zone, ns; tuples: in it; off: sum over keys of |estimate - count|; estimated, counted: tuples
    of `key`, as text.
    """

    bucket: int
    granularity: int
    first: int
    last: int
    tuples: int
    off: float
    key: str
    estimated: float
    counted: int

    def words(self) -> str:
        """The cell in a sentence."""
        return (
            f"bucket {self.bucket}, {moment(self.first)} to {moment(self.last)} (G{self.granularity}): of "
            f"{grouped_digits(self.tuples)} tuples {plain_number(self.off)} misjudged; of key {self.key} "
            f"{plain_number(self.estimated)} estimated, {grouped_digits(self.counted)} counted"
        )


@dataclass(frozen=True, slots=True, eq=False)
class CellErrors:
    """One stream's summary at its end.

    zones: oldest first; tuples: int64, off: float64 [zones, value buckets], as in `WrongCell`, over all keys that any
    stream of the join has; worst: the most wrong a second of their zone, first.  spec: what was built.
    """

    stream: str
    spec: SummarySpec
    zones: tuple[Zone, ...]
    tuples: Array
    off: Array
    worst: tuple[WrongCell, ...]

    @property
    def share(self) -> float | None:
        """Tuples misjudged over the tuples there are; None without any."""
        total = int(self.tuples.sum())
        return float(self.off.sum()) / total if total else None

    def reading(self) -> str:
        """What the picture shows, in a sentence."""
        share = self.share
        if share is None:
            return "No tuple of this stream is in a cell."
        wrong = int(np.count_nonzero(self.off))
        return (
            f"The estimates are off by {percent(share)} of the count: {plain_number(float(self.off.sum()))} tuples "
            f"misjudged of {grouped_digits(int(self.tuples.sum()))}, in {grouped_digits(wrong)} of "
            f"{grouped_digits(self.off.size)} cells."
        )

    def figure(self) -> Markup:
        """The heat map with its sentence, its list in words and its table, for a page."""

        def told(i: int, bucket: int) -> str:
            off, count = plain_number(float(self.off[i, bucket])), grouped_digits(int(self.tuples[i, bucket]))
            return f"G{self.zones[i].granularity}, bucket {bucket}: {off} tuples misjudged, {count} there"

        title = f"Where the summary of {self.stream} was wrong"
        said = self.reading()
        drawing = Markup()
        if self.zones:
            drawing = cell_picture(self.zones, self.off, told, label=f"{title}. {said}", class_="wrong")
        return element(
            "figure",
            element("figcaption", element("h3", title), element("p", said, class_="reading")),
            drawing,
            element(
                "p",
                "Time across, value buckets down; darker is more tuples misjudged a second (log scale), blank is "
                "right. Misjudged: the estimate of every key against its count, differences added up.",
                class_="note",
            ),
            self._table(),
            class_="chart",
        )

    def _table(self) -> Markup:
        names = ("bucket", "from", "to", "tuples", "misjudged", "worst key", "estimated", "counted")
        rows = [
            (cell.bucket, moment(cell.first), moment(cell.last), grouped_digits(cell.tuples), plain_number(cell.off),
             cell.key, plain_number(cell.estimated), grouped_digits(cell.counted))
            for cell in self.worst
        ]  # fmt: skip
        return folded("The worst cells", table(names, rows))

    def record(self) -> dict[str, Any]:
        """As it stands in the JSON."""
        return {
            "stream": self.stream,
            "tuples": int(self.tuples.sum()),
            "misjudged": float(self.off.sum()),
            "share": self.share,
            "zones": [
                {"granularity": zone.granularity, "first_ns": zone.first, "last_ns": zone.last,
                 "tuples": row.tolist(), "misjudged": off.tolist()}
                for zone, row, off in zip(self.zones, self.tuples, self.off, strict=True)
            ],
            "worst": [
                {"bucket": cell.bucket, "granularity": cell.granularity, "first_ns": cell.first, "last_ns": cell.last,
                 "tuples": cell.tuples, "misjudged": cell.off, "key": cell.key, "estimated": cell.estimated,
                 "counted": cell.counted}
                for cell in self.worst
            ],
        }  # fmt: skip


def cell_errors(name: str, stream: Loaded, encoded: Encoded, keys: KeyTable, spec: SummarySpec) -> CellErrors | None:
    """The whole of a stream summarised as `spec` says, its estimates against its counts; None without cells (T1).

    keys: every key that is asked about; encoded: the stream's, from that table.  O(zones * keys + tuples).
    """
    if spec.structure == "T1":
        return None
    summary = SummaryManager(spec, keys)
    summary.ingest_encoded(stream.ts, encoded)
    hashes = keys.hashes().copy()
    bucket = _buckets(summary, hashes)
    zones = tuple(summary.zones())
    shape = (len(zones), spec.value_buckets)
    tuples, off = np.zeros(shape, np.int64), np.zeros(shape)
    judge = _Judge(summary, hashes, encoded.codes)
    for i, zone in enumerate(zones):
        estimated, counted = judge(zone)
        tuples[i] = np.bincount(bucket, counted, shape[1]).astype(np.int64)
        off[i] = np.bincount(bucket, np.abs(estimated - counted), shape[1])
    worst = _worst(zones, tuples, off, judge, bucket, lambda code: key_text(keys.decode(np.array([code]))[0]))
    return CellErrors(name, spec, zones, tuples, off, worst)


class _Judge:
    """(estimated, counted) tuples of every key in a zone: float64 [k], int64 [k]."""

    def __init__(self, summary: SummaryManager, hashes: Array, codes: Array) -> None:
        self._summary, self._hashes, self._codes = summary, hashes, codes

    def __call__(self, zone: Zone) -> tuple[Array, Array]:
        own = self._codes[zone.start : zone.end]
        counted = np.bincount(own[own >= 0], minlength=self._hashes.shape[0])
        return self._summary.index(zone.granularity).in_zone(zone, self._hashes), counted


def _buckets(summary: SummaryManager, hashes: Array) -> Array:
    """The value bucket of each key: int64 [k].  A cell holds `bucket_columns` columns of two signs each."""
    spec = summary.spec
    cells: Array = summary.index(1).cells(hashes)[:, 0] // (2 * spec.bucket_columns)
    return cells


def _worst(
    zones: tuple[Zone, ...], tuples: Array, off: Array, judge: _Judge, bucket: Array, text: Callable[[int], str]
) -> tuple[WrongCell, ...]:
    if not zones:
        return ()
    rate = per_second(zones, off)
    first = np.argsort(-rate, axis=None, kind="stable")[:WORST]
    found = []
    for i, b in zip(*np.unravel_index(first, off.shape), strict=True):
        if off[i, b] > 0:
            zone = zones[i]
            estimated, counted = judge(zone)
            key = int(np.argmax(np.where(bucket == b, np.abs(estimated - counted), -1.0)))
            found.append(
                WrongCell(
                    int(b), zone.granularity, zone.first, zone.last, int(tuples[i, b]), float(off[i, b]), text(key),
                    float(estimated[key]), int(counted[key]),
                )
            )  # fmt: skip
    return tuple(found)
