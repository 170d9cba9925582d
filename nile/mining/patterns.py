"""Partial periodic patterns: which symbols come back at which places of a period, in most periods."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np

from nile.summaries.errors import ConfigError

__all__ = ["PatternFinder", "maximal"]

Array = np.ndarray[Any, Any]
ANY = "*"
"""What stands at a place of a pattern that any symbol may take."""


class PatternFinder:
    """The longest patterns of every `periods` periods: of `period` symbols each, some left open.

    A pattern has a symbol or "*" at each place of the period; it holds in a period that has all its symbols at their
    places, and is frequent where it holds in a share of at least `least` of the periods.  Told are the frequent ones
    of which no frequent one says more, at most `most`, those that say most first.
    One pass counts symbols by place; those that are frequent make up the largest pattern there may be; the second
    takes of each period what it has of that pattern (its hit), and equal hits are counted once: every count is a sum
    over hits, however many patterns are asked for.
    Gives the time of the first value, the pattern (symbols, a space between two), how many symbols it has and the
    share of periods in which it holds.  Memory: period * periods values.
    Source: STEAM, section 7.2 (partial periodic patterns); the max-subpattern hit set of Han, Dong and Yin (1999).
    """

    def __init__(self, period: int, periods: int, least: float, most: int, width: float) -> None:
        """width: of numbers, read by `Miner`.  Raises ConfigError."""
        if not (2 <= period <= 1 << 10 and 2 <= periods <= 1 << 16 and 0 < least <= 1 and 1 <= most <= 1 << 12):
            raise ConfigError(
                "PATTERNS: needed period from 2 to 1024, periods from 2 to 65536, least above 0, up to 1, and most "
                f"from 1 to 4096; got {period}, {periods}, {least:g} and {most}"
            )
        if not 0 < width < float("inf"):
            raise ConfigError(f"PATTERNS: needed width above 0; got {width:g}")
        self._period, self._periods, self._least, self._most = period, periods, least, most
        self._symbols: list[str] = []
        self._since = 0

    def push(self, at: Array, ts: Array, values: list[str]) -> list[tuple[int, int, tuple[Any, ...]]]:
        found: list[tuple[int, int, tuple[Any, ...]]] = []
        whole, begin = self._period * self._periods, 0
        while begin < len(values):
            if not self._symbols:
                self._since = int(ts[begin])
            end = min(begin + whole - len(self._symbols), len(values))
            self._symbols += values[begin:end]
            if len(self._symbols) == whole:
                told = self._patterns()
                found += [(int(at[end - 1]), int(ts[end - 1]), (self._since, *each)) for each in told]
                self._symbols = []
            begin = end
        return found

    def finish(self) -> list[tuple[int, int, tuple[Any, ...]]]:
        return []

    def _patterns(self) -> list[tuple[str, int, float]]:
        """(pattern, its symbols, its share) of the periods that are held."""
        period, periods = self._period, self._periods
        names, codes = np.unique(np.array(self._symbols, object), return_inverse=True)
        segments = codes.reshape(periods, period)
        least = max(ceil(self._least * periods - 1e-9), 1)
        letters, has = [], []
        for place in range(period):
            counts = np.bincount(segments[:, place], minlength=len(names))
            for code in np.flatnonzero(counts >= least).tolist():
                letters.append((place, str(names[code])))
                has.append(segments[:, place] == code)
        if not letters:
            return []
        hits, times = np.unique(np.array(has).T, axis=0, return_counts=True)
        made = []
        for chosen in maximal(hits, times, least, self._most):
            pattern = [ANY] * period
            for k in chosen:
                place, symbol = letters[k]
                pattern[place] = symbol
            share = int(times[hits[:, chosen].all(axis=1)].sum()) / periods
            made.append((" ".join(pattern), len(chosen), share))
        return sorted(made, key=lambda each: (-each[1], -each[2], each[0]))


def maximal(hits: Array, times: Array, least: int, most: int) -> list[list[int]]:
    """Sets of letters that at least `least` periods have and of which no larger one is such; at most `most` of them.

    hits: bool [n, letters], which letters a hit has; times: [n], in how many periods it was.
    Depth first, all that is left tried at once before its parts (Bayardo's Max-Miner): a branch that lies within a
    set that is known is not entered.
    """
    told: list[int] = []
    found: list[list[int]] = []
    waiting: list[tuple[list[int], Array]] = [([], np.arange(hits.shape[1]))]
    while waiting and len(found) < most:
        head, tail = waiting.pop()
        whole = sum(1 << k for k in [*head, *tail.tolist()])
        if not whole or any(whole & each == whole for each in told):
            continue
        rows = hits[:, head].all(axis=1)
        if times[rows & hits[:, tail].all(axis=1)].sum() >= least:
            told.append(whole)
            found.append(sorted([*head, *tail.tolist()]))
            continue
        # The last one waiting is looked at first: the branches of later letters wait below those of earlier ones.
        for k in range(len(tail) - 1, -1, -1):
            with_it = rows & hits[:, tail[k]]
            later = tail[k + 1 :]
            counts = times[with_it] @ hits[np.ix_(with_it, later)]
            waiting.append(([*head, int(tail[k])], later[counts >= least]))
    return found
