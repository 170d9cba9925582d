"""A summary as a picture: value buckets x time, zone borders, granularities.

Darker is denser: tuples per second of a cell, on a logarithmic scale from the emptiest to the densest.  The picture
shows what the guide can and cannot tell apart: inside one rectangle every tuple looks alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.zone import Zone
from nile.report.pages.markup import Markup, element, joined
from nile.report.pages.tables import folded, table
from nile.report.wording import grouped_digits

__all__ = ["HeatMap", "cell_picture", "moment", "per_second"]

Array = np.ndarray[Any, Any]
_WIDTH, _PLOT, _LEFT, _TOP = 1000, 240, 64, 34
_SECOND = 1e9


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The cells behind the picture.  zones: oldest first; tuples: int64 [zones, value buckets]."""

    title: str
    zones: tuple[Zone, ...]
    tuples: Array

    @classmethod
    def of(cls, summary: SummaryManager, title: str) -> HeatMap:
        """Read a summary's cells.  Counts are exact: every tuple adds one to the first sketch row of its cell."""
        buckets = summary.spec.value_buckets
        zones = tuple(summary.zones()) if summary.spec.structure != "T1" else ()
        counters = summary.store.side.counters
        newest = summary.index(1)
        open_zone = counters[newest.slot(1), 0] - sum(counters[newest.slot(node), 0] for node in newest.children(1))
        rows = []
        for zone in zones:
            first = counters[zone.slot, 0] if zone.slot >= 0 else open_zone
            rows.append(first.reshape(buckets, -1).sum(axis=1))
        return cls(title, zones, np.array(rows, np.int64).reshape(len(zones), buckets))

    def svg(self) -> Markup:
        """The picture, in the ink of the page around it."""
        if not self.zones:
            return element("p", "No zones: the summary is empty, or its structure is T1.", class_="note")
        label = f"{self.title}: {len(self.zones)} zones of {self.tuples.shape[1]} value buckets, darker is denser"

        def told(i: int, bucket: int) -> str:
            count = grouped_digits(int(self.tuples[i, bucket]))
            return f"G{self.zones[i].granularity}, bucket {bucket}: {count} tuples"

        return cell_picture(self.zones, self.tuples, told, label=label)

    def figure(self) -> Markup:
        """The picture with a sentence and its table, for a page."""
        total = int(self.tuples.sum())
        spread = [max(1, int(row.max())) / max(1.0, float(row.mean())) for row in self.tuples]
        told = (
            f"{grouped_digits(total)} tuples in {len(self.zones)} zones; a zone's fullest bucket holds on average "
            f"{sum(spread) / len(spread):.1f} times the mean of its buckets."
            if self.zones
            else ""
        )
        return element(
            "figure",
            element("figcaption", element("h3", self.title), element("p", told, class_="reading")),
            self.svg(),
            element("p", "Time across, value buckets down, darker is denser (log scale); thick lines part the "
                    "granularities, the oldest on the left.", class_="note"),
            self._table(),
            class_="chart",
        )  # fmt: skip

    def _table(self) -> Markup:
        rows = [
            (f"G{zone.granularity}", moment(zone.first), moment(zone.last), grouped_digits(zone.summarised))
            for zone in self.zones
        ]
        return folded("Zones", table(("granularity", "from", "to", "tuples"), rows))


def cell_picture(
    zones: Sequence[Zone], amount: Array, told: Callable[[int, int], str], *, label: str, class_: str | None = None
) -> Markup:
    """Value buckets down, time across: the more of `amount` [zones, buckets] a second of its zone, the darker a cell.

    A cell of 0 is left blank.  told: what is said of the cell (zone, bucket).  class_: of the cells.
    """
    begin, end = zones[0].first, max(zone.last for zone in zones)
    scale = _WIDTH / max(1, end - begin)
    buckets = amount.shape[1]
    height = _PLOT / buckets
    shades = _shades(per_second(zones, amount))
    parts: list[Markup] = []
    for i, zone in enumerate(zones):
        x = _LEFT + (zone.first - begin) * scale
        width = max(1.0, (zone.last - zone.first) * scale)
        parts += [
            element(
                "rect", element("title", told(i, bucket)), x=f"{x:.1f}", y=f"{_TOP + bucket * height:.1f}",
                width=f"{width:.1f}", height=f"{height:.1f}", fill="currentColor",
                fill_opacity=f"{shades[i, bucket]:.2f}", class_=class_,
            )
            for bucket in np.flatnonzero(amount[i]).tolist()
        ]  # fmt: skip
        parts.append(_border(x, zone, i == 0 or zones[i - 1].granularity != zone.granularity))
    parts.append(_text(_LEFT - 8, _TOP + 12, "bucket 0", "end"))
    parts.append(_text(_LEFT - 8, _TOP + _PLOT, f"{buckets - 1}", "end"))
    parts.append(_text(_LEFT, _TOP + _PLOT + 20, moment(begin), "start"))
    parts.append(_text(_LEFT + _WIDTH, _TOP + _PLOT + 20, moment(end), "end"))
    size = f"0 0 {_LEFT + _WIDTH + 8} {_TOP + _PLOT + 30}"
    return element(
        "svg", *parts, viewBox=size, role="img", aria_label=label, xmlns="http://www.w3.org/2000/svg", class_="heat"
    )


def per_second(zones: Sequence[Zone], amount: Array) -> Array:
    """An amount of each cell [zones, buckets] over the length of its zone in seconds."""
    lengths = [max(zone.length, 1) / _SECOND for zone in zones]
    share: Array = amount / np.array(lengths)[:, None]
    return share


def _shades(density: Array) -> Array:
    """0.08 for the emptiest cell that holds anything to 0.92 for the densest, by logarithm."""
    logs = np.log10(np.where(density > 0, density, 1.0))
    held = logs[density > 0]
    low, high = (float(held.min()), float(held.max())) if held.size else (0.0, 0.0)
    return 0.08 + 0.84 * (logs - low) / (high - low) if high > low else np.full(density.shape, 0.5)


def _border(x: float, zone: Zone, begins: bool) -> Markup:
    line = element(
        "line", x1=f"{x:.1f}", x2=f"{x:.1f}", y1=_TOP - (10 if begins else 3), y2=_TOP + _PLOT + 3,
        stroke="currentColor", stroke_width="2.5" if begins else "0.6",
    )  # fmt: skip
    return joined(line, _text(x + 5, _TOP - 12, f"G{zone.granularity}", "start")) if begins else line


def _text(x: float, y: float, words: str, anchor: str) -> Markup:
    return element(
        "text", words, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, fill="currentColor", font_size="13",
        font_family="system-ui, sans-serif",
    )  # fmt: skip


def moment(ns: int) -> str:
    """A time as a person reads it, to the minute."""
    try:
        return datetime.fromtimestamp(ns // 1_000_000_000, UTC).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, OSError, ValueError):
        return f"{ns} ns"
