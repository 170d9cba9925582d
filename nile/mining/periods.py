"""Periods of a series: for each stretch of values, the time after which it repeats."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.summaries.errors import ConfigError

__all__ = ["PeriodFinder"]

Array = np.ndarray[Any, Any]
_NEAR = 0.7
"""A shorter period is meant where it is so much as strong as the strongest: every multiple of one is one too."""
_REFINED = 8
"""Multiples of a period that are looked at to tell it more exactly."""


class PeriodFinder:
    """The period of every `span` values: the shortest lag at which they agree with themselves nearly as well as ever.

    Agreement is the autocorrelation without the straight line through the values, over the values that overlap, from
    -1 to 1; what stays below `least`, or is constant, has no period.  Lags go to span/2.  The lag of a maximum is told
    by the parabola through it, and more exactly by those through its multiples.  A form with edges needs a dozen values
    a period to be like itself after one that is no whole number of them.
    Gives the time of the first value, the period in values and in seconds (by the mean distance of values) and the
    agreement.  Memory: span values.  Cost: O(log span) a value, by FFT.
    Source: STEAM, section 7.2 (cycle detection).
    """

    def __init__(self, span: int, least: float) -> None:
        """Raises ConfigError."""
        if not (8 <= span <= 1 << 20 and 0 < least <= 1):
            raise ConfigError(f"PERIODS: needed span from 8 and least above 0, up to 1; got {span} and {least:g}")
        self._span, self._least = span, least
        self._ts, self._values = np.zeros(0, np.int64), np.zeros(0)

    def push(self, at: Array, ts: Array, values: Array) -> list[tuple[int, int, tuple[Any, ...]]]:
        held, span = len(self._ts), self._span
        self._ts, self._values = np.concatenate([self._ts, ts]), np.concatenate([self._values, values])
        found = []
        whole = len(self._ts) // span * span
        for begin in range(0, whole, span):
            end = begin + span
            if (told := self._period(self._values[begin:end])) is not None:
                lag, strength = told
                times = self._ts[begin:end]
                seconds = lag * int(times[-1] - times[0]) / (span - 1) / 1e9
                by = end - 1 - held
                found.append((int(at[by]), int(ts[by]), (int(times[0]), lag, seconds, strength)))
        self._ts, self._values = self._ts[whole:], self._values[whole:]
        return found

    def finish(self) -> list[tuple[int, int, tuple[Any, ...]]]:
        return []

    def _period(self, values: Array) -> tuple[float, float] | None:
        agreement = _agreement(values, self._span // 2)
        if agreement is None:
            return None
        inner = agreement[1:-1]
        maxima = 1 + np.flatnonzero((inner > agreement[:-2]) & (inner >= agreement[2:]) & (inner >= self._least))
        below = np.flatnonzero(agreement < 0)
        maxima = maxima[maxima > below[0]] if below.size else maxima[:0]
        if not maxima.size:
            return None
        lags, heights = _tops(agreement, maxima)
        first = int(np.flatnonzero(heights >= _NEAR * heights.max())[0])
        lag = float(lags[first])
        for times in range(2, _REFINED + 1):
            near = np.flatnonzero(np.abs(maxima - times * lag) <= max(lag / 4, 1))
            if not near.size:
                break
            lag = float(lags[near[np.argmax(heights[near])]]) / times
        return lag, float(agreement[maxima[first]])


def _agreement(values: Array, lags: int) -> Array | None:
    """Autocorrelation at lags 0 to `lags`; None where nothing varies."""
    n = len(values)
    line = np.arange(n) - (n - 1) / 2
    # A constant or a straight line leaves rounding alone, which is no variation.
    scale = float(np.abs(values).max())
    rest = values - values.mean()
    rest = rest - line * (line @ rest) / (line @ line)
    if not np.isfinite(scale) or float(np.abs(rest).max()) <= 1e-9 * scale:
        return None
    size = 1 << (2 * n - 1).bit_length()
    power = np.abs(np.fft.rfft(rest, size)) ** 2
    products = np.fft.irfft(power, size)[: lags + 1]
    squares = np.concatenate([[0.0], np.cumsum(rest**2)])
    k = np.arange(lags + 1)
    scales = np.sqrt(squares[n - k] * (squares[n] - squares[k]))
    found: Array = np.divide(products, scales, out=np.zeros(lags + 1), where=scales > 0)
    return found


def _tops(agreement: Array, maxima: Array) -> tuple[Array, Array]:
    """Where the parabolas through maxima and their neighbours are highest, and how high."""
    left, top, right = agreement[maxima - 1], agreement[maxima], agreement[maxima + 1]
    bend = left - 2 * top + right
    aside = np.divide(left - right, 2 * bend, out=np.zeros(len(maxima)), where=bend < 0)
    return maxima + aside, top - (left - right) * aside / 4
