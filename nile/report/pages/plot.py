"""Bars with intervals, of an answer: a page of its own, which a notebook shows and `save` writes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nile.report.pages.document import document
from nile.report.pages.markup import Markup, element
from nile.report.pages.svg import HEIGHT, INSET, Axis, grid, linear_axis
from nile.report.pages.tables import folded, table
from nile.report.saving import save_texts
from nile.report.wording import plain_number
from nile.summaries.errors import ConfigError
from nile.summaries.heavy import pa, pc

__all__ = ["Bar", "Plot", "histogram"]

Array = np.ndarray[Any, Any]
Reach = Callable[[Array, int], Array]
_MOST_BARS = 500
_LONGEST, _LETTER = 16, 8
"""Characters of such a name at most, and pixels that one takes, with what lies between two names."""
_WIDE, _NARROW = 600, 240
"""Pixels that there are at least across, in a window and in a narrow one."""
_LABELS = 8
"""Names that stand below a plot; those of the other bars are in its table, and where the pointer rests."""


@dataclass(frozen=True, slots=True)
class Bar:
    """name: its place across; low and high: of the interval of `value`, which may be infinite."""

    name: str
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Plot:
    """Bars in a row.  across: what they are of; up: what their height is; note: how the intervals are meant."""

    across: str
    up: str
    bars: tuple[Bar, ...]
    note: str

    def html(self) -> str:
        """The page: one file, nothing loaded from anywhere."""
        return document(f"Nile: {self.up} by {self.across}", self._figure())

    def save(self, path: str | Path) -> Path:
        """Write the page, whole or not at all.  Raises ConfigError for a path that cannot be written."""
        save_texts({Path(path): self.html()})
        return Path(path)

    def _repr_html_(self) -> str:
        """The page in a frame of its own, for a notebook."""
        return str(element("iframe", srcdoc=self.html(), width="100%", height="480", style="border: 0"))

    def __repr__(self) -> str:
        return f"<Plot of {self.up} by {self.across}: {len(self.bars)} bars>"

    def _figure(self) -> Markup:
        names = (self.across, self.up, "low", "high")
        told = [(bar.name, *map(_number, (bar.value, bar.low, bar.high))) for bar in self.bars]
        return element(
            "figure",
            element("figcaption", element("h3", f"{self.up} by {self.across}")),
            element("div", self._drawing(), class_="plot"),
            element("p", self.across, class_="axis across"),
            element("p", self.note, class_="note"),
            folded("Numbers", table(names, told)),
            class_="chart",
        )

    def _drawing(self) -> Markup:
        axis, lowest, highest = _axis(self.bars)
        width = (100 - 2 * INSET) / max(1, len(self.bars))
        names = [bar.name.removeprefix("from ") for bar in self.bars]
        names = [name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}\u2026" for name in names]
        widest = max(map(len, names), default=1) * _LETTER
        stride = max(1, math.ceil(len(names) / _LABELS), math.ceil(len(names) * widest / _WIDE))
        narrow = stride * max(1, math.ceil(len(names) * widest / stride / _NARROW))
        parts = [grid(axis)]
        for i, bar in enumerate(self.bars):
            left = INSET + i * width
            ends = sorted((axis.place(0.0), axis.place(0.0 if math.isnan(bar.value) else bar.value)))
            rect = element("rect", x=f"{left + 0.1 * width:.3f}%", width=f"{0.8 * width:.3f}%", y=f"{ends[0]:.1f}",
                           height=f"{ends[1] - ends[0]:.1f}", class_="was")  # fmt: skip
            middle = f"{left + width / 2:.3f}%"
            if bar.low < bar.high:
                low, high = (f"{axis.place(min(max(end, lowest), highest)):.1f}" for end in (bar.low, bar.high))
                rect = Markup(rect + element("line", x1=middle, x2=middle, y1=low, y2=high, class_="told s0"))
            told = f"{bar.name}: {_number(bar.value)}, from {_number(bar.low)} to {_number(bar.high)}"
            parts.append(element("g", element("title", told), rect))
            if i % stride == 0:
                shown = "tick middle" if i % narrow == 0 else "tick middle spare"
                parts.append(element("text", names[i], x=middle, y=HEIGHT + 20, class_=shown))
        label = f"{self.up} by {self.across}"
        return element("svg", *parts, role="img", aria_label=label, width="100%", height=HEIGHT)


def histogram(
    values: pa.Array, weights: Array, *, across: str, up: str, note: str, bins: int, reach: Reach | None
) -> Plot:
    """What a column's values are spread over, in at most `bins` bars, and one of nulls.

    Numbers and times in intervals of equal length, whole numbers each alone where they are few; of anything else the
    most frequent, the rest together.  weights: what each row stands for, float64 [n].  reach: (bar of each row, number
    of bars) -> how far the interval of each total reaches to either side; None: they are known.
    Raises ConfigError for `bins` below 1 or above 500.
    """
    if isinstance(bins, bool) or not isinstance(bins, int) or not 1 <= bins <= _MOST_BARS:
        raise ConfigError(f"plot: needed a whole number of bins, 1 to {_MOST_BARS}; got {bins!r}; 20 are easy to read")
    group, names = _grouped(values, bins)
    totals = np.bincount(group, weights, len(names))
    far = np.zeros(len(names))
    if reach is not None:  # where nothing was found, nothing is known
        far = np.where(np.bincount(group, minlength=len(names)) > 0, reach(group, len(names)), math.inf)
    rows = zip(names, totals.tolist(), far.tolist(), strict=True)
    bars = (Bar(name, total, max(0.0, total - out), total + out) for name, total, out in rows)
    return Plot(across, up, tuple(bars), note)


def _grouped(values: pa.Array, bins: int) -> tuple[Array, list[str]]:
    """The bar of each value, int64 [n], and the bars' names."""
    kind = values.type
    known = pc.drop_null(values)
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if len(known) and (is_number or pa.types.is_timestamp(kind)):
        group, names = _equal(values, bins)
    else:
        group, names = _frequent(values, bins)
    if len(known) < len(values):
        group = np.where(np.asarray(values.is_null()), len(names), group)
        names = [*names, "null"]
    return group, names


def _equal(values: pa.Array, bins: int) -> tuple[Array, list[str]]:
    whole = not pa.types.is_floating(values.type)
    moments = pa.types.is_timestamp(values.type)
    raw = values.cast(pa.int64()) if moments else values
    numbers = np.asarray(raw.fill_null(0)).astype(np.float64)
    held = np.isfinite(numbers) & np.asarray(values.is_valid())
    if not held.any():
        return _frequent(values, bins)
    low, high = float(numbers[held].min()), float(numbers[held].max())
    few = whole and not moments and high - low < bins
    count = int(high - low) + 1 if few else 1 if low == high else bins
    step = 1.0 if few else (high - low) / count
    group = np.zeros(len(values), np.int64)
    group[held] = np.minimum((numbers[held] - low) / (step or 1.0), count - 1).astype(np.int64)
    if few:
        names = [str(int(low) + i) for i in range(count)]
    else:
        ends = [low + i * step for i in range(count)]
        names = _moments(ends, values.type) if moments else [f"from {_number(end)}" for end in ends]
    if (strange := np.asarray(values.is_valid()) & ~held).any():
        group[strange] = count
        names = [*names, "not finite"]
    return group, names


def _moments(ends: Sequence[float], kind: pa.DataType) -> list[str]:
    """Times as text, to the second."""
    unit = pa.timestamp("s", kind.tz)
    return [str(moment) for moment in pa.array(list(map(round, ends)), kind).cast(unit, safe=False).to_pylist()]


def _frequent(values: pa.Array, bins: int) -> tuple[Array, list[str]]:
    texts = pa.array([None if value is None else str(value) for value in values.to_pylist()], pa.string())
    coded = texts.dictionary_encode()
    codes = np.asarray(coded.indices.fill_null(0)).astype(np.int64)
    names = coded.dictionary.to_pylist()
    order = np.argsort(-np.bincount(codes[np.asarray(texts.is_valid())], minlength=len(names)), kind="stable")
    shown = order[: bins if len(names) <= bins else bins - 1]
    place = np.full(max(1, len(names)), shown.shape[0])
    place[shown] = np.arange(shown.shape[0])
    told = [names[at] for at in shown.tolist()]
    return place[codes], told if len(names) == len(told) else [*told, f"{len(names) - len(told):,} others"]


def _axis(bars: Sequence[Bar]) -> tuple[Axis, float, float]:
    """The axis, and the least and the greatest value that have a place on it."""
    ends = [end for bar in bars for end in (bar.value, bar.low, bar.high) if math.isfinite(end)]
    low, high = min(0.0, *ends, 0.0), max(0.0, *ends, 0.0)
    if low == 0.0:
        return linear_axis([high], "number"), low, high or 1.0
    span = high - low
    marks = sorted({low, 0.0, high})
    return Axis(tuple((mark, _number(mark)) for mark in marks), lambda v: HEIGHT * (high - v) / span), low, high


def _number(value: float) -> str:
    return plain_number(value) if math.isfinite(value) else "unknown"
