"""What the steps of a strategy cost, in nanoseconds of CPU: the one place that forecasts and spending are priced at."""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass
from math import log2
from typing import TypeAlias

__all__ = ["PRICES", "Curve", "Prices", "along"]

Curve: TypeAlias = tuple[tuple[float, float], ...]
"""A price by size: (binary logarithm of the size, ns), sizes rising; between them by straight lines, outside as at the
nearest."""


def along(curve: Curve, size: float) -> float:
    """The price at a size."""
    x = log2(max(1.0, size))
    at = bisect(curve, (x, float("inf")))
    if at in (0, len(curve)):
        return curve[min(at, len(curve) - 1)][1]
    (low, below), (high, above) = curve[at - 1], curve[at]
    return below + (above - below) * (x - low) / (high - low)


@dataclass(frozen=True, slots=True)
class Prices:
    """Nanoseconds of CPU, all cores together.

    Per tuple: table, of one in memory, whose times are looked at once for all readings; read, handed over by Arrow
    otherwise and its time checked; parquet, read from a file, parquet_text besides
    where its key is text; csv, read from such a file; words, hashing a key of text; seen, counted by the slot of
    its key; look, admitted or refused; copy, of one that came in, text a key of text besides; code, a number as the
    joins take it; encode, a key of text instead, and dense, numbers far apart besides, by how many distinct ones
    there are; join, the exact join, by distinct keys, and branch where an arrival may or may not find a partner;
    count, its range of matches and its place in its key's list, by distinct keys; promise, queues of promising
    regions.
    Per slot: weigh, what it promises, and its rank.
    Per pair, columns handed out, by how many a tuple has: pair, of the exact join, and, of tuples that came in,
    chosen; emit, written from lists in any order, and, of a sample, drawn. Per tuple counted: draw, of a sample of
    their pairs; tell, what it tells.
    Per run: begin, what none takes less than; start, granted beside every fraction.
    """

    table: float = 0.2
    read: float = 4.0
    parquet: float = 32.0
    parquet_text: float = 62.0
    csv: float = 360.0
    words: float = 16.0
    seen: float = 8.2
    weigh: float = 52.0
    look: float = 4.0
    copy: float = 11.0
    text: float = 8.0
    code: float = 1.5
    encode: Curve = ((10.0, 20.0), (14.0, 30.0), (17.0, 38.0), (20.0, 85.0))
    dense: Curve = ((10.0, 2.5), (14.0, 5.0), (17.0, 12.0), (20.0, 29.0))
    join: Curve = ((8.0, 12.8), (14.0, 14.3), (17.0, 21.0), (20.0, 40.0))
    branch: float = 11.0
    count: Curve = ((8.0, 15.3), (14.0, 17.5), (17.0, 26.0), (20.0, 50.0))
    promise: float = 600.0
    pair: Curve = ((0.0, 18.0), (1.0, 15.0), (3.0, 11.5), (5.0, 9.5), (8.0, 6.0))
    chosen: float = 3.0
    emit: Curve = ((0.0, 16.0), (1.0, 13.0), (3.0, 10.0), (5.0, 9.0), (8.0, 9.0))
    draw: float = 6.0
    drawn: float = 12.0
    tell: float = 5.0
    begin: float = 1.8e6
    start: float = 1.2e7

    def reading(self, source: str, hashed: bool) -> float:
        """Per tuple: read from a source of that class, its key text or not."""
        if source in ("ParquetSource", "LakeSource", "ManySource"):
            return self.parquet + hashed * self.parquet_text
        return {"CsvSource": self.csv, "Table": self.table}.get(source, self.read)

    def pairing(self, matches: float) -> float:
        """Per pair of the exact join, where a tuple of either stream completes so many."""
        return along(self.pair, matches)

    def emitting(self, matches: float) -> float:
        """Per pair written from lists."""
        return along(self.emit, matches)

    def coding(self, keys: float, hashed: float, *, sparse: bool = False) -> float:
        """Per tuple: its key as joins take it, where so many are distinct and a share of the tuples has text.

        sparse: whether numbers are far apart.
        """
        number = self.code + (along(self.dense, keys) if sparse else 0.0)
        return number + hashed * (along(self.encode, keys) - number)

    def joining(self, keys: float, matches: float) -> float:
        """Per tuple: the exact join, where a tuple completes so many pairs."""
        return along(self.join, keys) + self.branch * min(1.0, matches)

    def counting(self, keys: float) -> float:
        """Per tuple: its matches counted and its place listed."""
        return along(self.count, keys)


PRICES = Prices()
"""As measured on two cores of a server, warm kernels, data in memory."""
