"""The matrix profile of a series, incrementally: each stretch's distance from the most similar one before it."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.summaries.errors import ConfigError
from nile.summaries.lazy import lazy

__all__ = ["Profiler"]

Array = np.ndarray[Any, Any]
kernels = lazy("nile.mining.kernels")


class Profiler:
    """Of each `length` values in a row the distance to the nearest ones that began at most `span` values before.

    Nearest: by Euclidean distance after both are brought to mean 0 and deviation 1; at least length/4 values apart, so
    that none is near itself.  A large distance is something new, a small one comes again.  The left matrix profile.
    Memory: span + length values.  Cost: O(span) a value.  Values are taken as differences from the first one, and
    distances are roots of differences: below about 1e-4 they are rounding.
    Source: matrix profile I and II (Yeh, Zhu and others), with a bounded past.
    """

    def __init__(self, length: int, span: int) -> None:
        """Raises ConfigError."""
        if not 4 <= length <= span <= 1 << 20:
            raise ConfigError(f"PROFILE: needed length from 4 to span; got length {length} and span {span}")
        self._length, self._span = length, span
        self._apart = -(-length // 4)
        self._series, self._ts = np.zeros(0), np.zeros(0, np.int64)
        self._dots, self._means, self._deviations = np.zeros(span + 1), np.zeros(0), np.zeros(0)
        self._first: float | None = None

    def push(self, at: Array, ts: Array, values: Array) -> list[tuple[int, int, tuple[Any, ...]]]:
        if self._first is None:
            self._first = float(values[0])
        begin = len(self._series)
        self._series = np.concatenate([self._series, values - self._first])
        self._ts = np.concatenate([self._ts, ts])
        self._means = np.concatenate([self._means, np.zeros(len(ts))])
        self._deviations = np.concatenate([self._deviations, np.zeros(len(ts))])
        distances, nearest = kernels.profiled(
            self._series, begin, self._length, self._span, self._apart, self._dots, self._means, self._deviations
        )
        found = []
        for k in np.flatnonzero(nearest >= 0).tolist():
            since = int(self._ts[begin + k - self._length + 1])
            found.append((int(at[k]), int(ts[k]), (since, float(distances[k]), int(self._ts[nearest[k]]))))
        gone = max(len(self._series) - self._span - self._length - 1, 0)
        self._series, self._ts = self._series[gone:], self._ts[gone:]
        self._means, self._deviations = self._means[gone:], self._deviations[gone:]
        return found

    def finish(self) -> list[tuple[int, int, tuple[Any, ...]]]:
        return []
