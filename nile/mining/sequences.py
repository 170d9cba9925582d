"""Subsequences that come in several series: told when they have come in as many as are asked for."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

import numpy as np

from nile.summaries.errors import ConfigError

__all__ = ["SequenceFinder"]

Array = np.ndarray[Any, Any]
_Sequence = tuple[str, ...]


class SequenceFinder:
    """The sequences of `length` symbols that at least `series` series have had among their last `span` symbols.

    A sequence is told whenever it comes to be so frequent, by the series that makes it so; it may fall below again,
    by what leaves the spans, and come back.  Exact: every sequence of every span is counted.
    Gives the time of its first symbol there, the sequence (symbols, a space between two) and the number of series.
    Memory: O(span) a series.  Cost: O(length) a symbol.
    Source: STEAM, section 7.2 (frequent subsequences across all incoming streams).
    """

    def __init__(self, length: int, series: int, span: int, width: float) -> None:
        """width: of numbers, read by `Miner`.  Raises ConfigError."""
        if not (1 <= length <= span <= 1 << 20 and series >= 1):
            raise ConfigError(
                "SEQUENCES: needed length from 1 to span, series from 1 and span up to 1048576; got "
                f"{length}, {series} and {span}"
            )
        if not 0 < width < float("inf"):
            raise ConfigError(f"SEQUENCES: needed width above 0; got {width:g}")
        self._length, self._least, self._held = length, series, span - length + 1
        self._last: dict[Any, deque[tuple[str, int]]] = {}
        self._spans: dict[Any, deque[_Sequence]] = {}
        self._counts: dict[Any, Counter[_Sequence]] = {}
        self._series: Counter[_Sequence] = Counter()

    def push_keyed(
        self, at: Array, ts: Array, values: list[str], keys: list[Any]
    ) -> list[tuple[Any, tuple[int, int, tuple[Any, ...]]]]:
        """(key, what was found), in the order of the tuples of all series.  keys: [n], of each value."""
        found = []
        for place, time, symbol, key in zip(at.tolist(), ts.tolist(), values, keys, strict=True):
            if key not in self._last:
                self._last[key], self._spans[key], self._counts[key] = deque(maxlen=self._length), deque(), Counter()
            last, span, counts = self._last[key], self._spans[key], self._counts[key]
            last.append((symbol, time))
            if len(last) < self._length:
                continue
            sequence = tuple(each for each, _ in last)
            span.append(sequence)
            counts[sequence] += 1
            if counts[sequence] == 1:
                self._series[sequence] += 1
                if self._series[sequence] == self._least:
                    found.append((key, (place, time, (last[0][1], " ".join(sequence), self._least))))
            if len(span) > self._held:  # after the new one, which may be the same
                self._take_back(span.popleft(), counts)
        return found

    def finish(self) -> list[tuple[Any, tuple[int, int, tuple[Any, ...]]]]:
        return []

    def _take_back(self, sequence: _Sequence, counts: Counter[_Sequence]) -> None:
        counts[sequence] -= 1
        if not counts[sequence]:
            del counts[sequence]
            self._series[sequence] -= 1
            if not self._series[sequence]:
                del self._series[sequence]
