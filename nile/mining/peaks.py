"""Peaks of a series: local maxima that stand out, as `scipy.signal.find_peaks` finds them, as values come."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nile.summaries.errors import ConfigError
from nile.summaries.lazy import lazy

__all__ = ["PeakFinder"]

Array = np.ndarray[Any, Any]
kernels = lazy("nile.mining.kernels")


class PeakFinder:
    """Local maxima with a prominence, in windows of `span` values around them, of at least `prominence`.

    The middle of a plateau is its place.  smooth: the series is smoothed first by a Gaussian of that many values
    (standard deviation; cut at four of them, at the ends weighted by what is there); 0: not.  A peak is known span/2
    values (and 4 smooth) after its place.  Without smoothing these are the peaks and prominences that
    `find_peaks(x, prominence=p, wlen=span)` gives of the whole series.
    Memory: the values that are not decided yet, about span.  Cost: O(8 smooth + span a local maximum) a value.
    Source: scipy.signal, find_peaks and peak_prominences; STEAM, section 7.2.
    """

    def __init__(self, prominence: float, span: int, smooth: float) -> None:
        """Raises ConfigError."""
        if not (prominence >= 0 and span >= 3 and 0 <= smooth <= 10_000 and math.isfinite(prominence)):
            raise ConfigError(
                "PEAKS: needed prominence from 0, span from 3 and smooth from 0 to 10000; got "
                f"{prominence:g}, {span}, {smooth:g}"
            )
        self._least = prominence
        self._half = span // 2  # of the next odd number
        reach = math.ceil(4 * smooth)
        offsets = np.arange(-reach, reach + 1)
        self._weights = np.exp(-0.5 * (offsets / smooth) ** 2) if smooth else np.ones(1)
        self._reach = reach
        self._raw = np.zeros(0)
        self._before = 0  # of the raw values, those that are smoothed already, and still needed
        self._at, self._ts, self._series = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
        self._known_at, self._known_ts = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._next = 1  # the first place of the series that may still be a peak, or begin the plateau of one
        self._first = 0

    def push(self, at: Array, ts: Array, values: Array) -> list[tuple[int, int, tuple[Any, ...]]]:
        self._at, self._ts = np.concatenate([self._at, at]), np.concatenate([self._ts, ts])
        self._raw = np.concatenate([self._raw, values])
        ready = max(len(self._raw) - self._reach, self._before)
        self._smooth(ready)
        return self._found(ended=False)

    def finish(self) -> list[tuple[int, int, tuple[Any, ...]]]:
        self._smooth(len(self._raw))
        return self._found(ended=True)

    def _smooth(self, ready: int) -> None:
        more = kernels.smoothed(self._raw, self._weights, self._before, ready)
        self._series = np.concatenate([self._series, more])
        gone = max(ready - self._reach, 0)
        self._raw, self._before = self._raw[gone:], ready - gone

    def _found(self, *, ended: bool) -> list[tuple[int, int, tuple[Any, ...]]]:
        series, places = self._series, len(self._at) - 1
        peaks, prominences, decided, keep, self._next = kernels.peaks(series, self._next, self._half, ended)
        found = []
        for k in np.flatnonzero(prominences >= self._least).tolist():
            by = min(int(decided[k]) + self._reach, places)
            row = (int(self._ts[peaks[k]]), float(series[peaks[k]]), float(prominences[k]))
            found.append((int(self._at[by]), int(self._ts[by]), row))
        self._at, self._ts, self._series = self._at[keep:], self._ts[keep:], series[keep:]
        self._next -= keep
        return found
