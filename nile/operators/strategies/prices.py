"""What the steps of a strategy cost, in nanoseconds of CPU: the one place that forecasts and spending are priced at."""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass
from math import log2, sqrt
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
    otherwise and its time checked; parquet, read from a file, parquet_text besides where its key is text; csv, read
    from such a file; words, hashing a key of text, and taken, of the few that are looked at; seen, counted by the slot
    of its key, and some keys by themselves; look, admitted or refused; copy, of one that came in, text a key of text
    besides; code, a number as the joins take it; encode, a key of text instead, and dense, numbers far apart besides,
    by how many distinct ones there are; sift, told by its key whether it may have partners; join, the exact join, by
    distinct keys, chain, of many tuples in a short window, and branch where an arrival may or may not find a partner;
    count, its range of matches and its place in its key's list, by distinct keys; list, its place there, and its key's
    pairs counted, by distinct keys; promise, queues of promising regions.
    Per slot: weigh, what it promises, and its rank.
    Per pair, columns handed out, by how many a tuple has: pair, of the exact join; emit, written from lists in any
    order, and, of a sample, drawn; keyed, written key after key, and repeat, besides where the key is text; named, of
    the others; far, besides, by how many tuples lie in the window, over the root of how many pairs an arrival has.
    Per tuple counted: draw, of a sample of their pairs; tell, what it tells.
    Per run: begin, what none takes less than; solve, rates of a sample, and what it tells; start, granted beside every
    fraction.
    """

    table: float = 0.2
    read: float = 4.0
    parquet: float = 32.0
    parquet_text: float = 62.0
    csv: float = 360.0
    words: float = 16.0
    taken: float = 30.0
    seen: float = 12.5
    weigh: float = 52.0
    look: float = 4.0
    copy: float = 11.0
    text: float = 8.0
    code: float = 1.5
    encode: Curve = ((10.0, 20.0), (14.0, 30.0), (17.0, 38.0), (20.0, 85.0))
    dense: Curve = ((10.0, 2.5), (14.0, 10.0), (17.0, 26.0), (20.0, 30.0))
    join: Curve = ((8.0, 11.0), (14.0, 12.5), (17.0, 19.0), (20.0, 34.0))
    sift: float = 3.0
    chain: float = 6.5
    branch: float = 11.0
    count: Curve = ((8.0, 15.3), (14.0, 17.5), (17.0, 26.0), (20.0, 50.0))
    list: Curve = ((8.0, 11.0), (14.0, 12.5), (17.0, 18.5), (20.0, 38.0))
    promise: float = 600.0
    pair: Curve = ((0.0, 20.0), (1.0, 16.0), (3.0, 12.0), (5.0, 9.2), (8.0, 6.9))
    emit: Curve = ((0.0, 16.0), (1.0, 13.0), (3.0, 10.0), (5.0, 9.0), (8.0, 9.0))
    keyed: Curve = ((0.0, 19.0), (1.0, 13.0), (3.0, 7.0), (5.0, 4.9), (8.0, 4.1))
    repeat: float = 2.0
    named: Curve = ((0.0, 7.0), (1.0, 5.5), (3.0, 4.2), (6.0, 3.4))
    far: Curve = ((13.0, 0.1), (14.0, 2.5), (16.0, 8.0), (17.0, 17.0), (18.0, 30.0), (20.0, 55.0))
    draw: float = 6.0
    drawn: float = 12.0
    tell: float = 5.0
    begin: float = 1.8e6
    solve: float = 3.0e6
    start: float = 1.2e7

    def reading(self, source: str, hashed: bool) -> float:
        """Per tuple: read from a source of that class, its key text or not."""
        if source in ("ParquetSource", "LakeSource", "ManySource"):
            return self.parquet + hashed * self.parquet_text
        return {"CsvSource": self.csv, "Table": self.table}.get(source, self.read)

    def pairing(self, matches: float, hashed: float = 0.0) -> float:
        """Per pair of the exact join, where a tuple of either stream completes so many.  hashed: share of text."""
        return along(self.pair, matches) + hashed * along(self.named, matches)

    def emitting(self, matches: float, hashed: float = 0.0) -> float:
        """Per pair written from lists."""
        return along(self.emit, matches) + hashed * along(self.named, matches)

    def keying(self, matches: float, hashed: float = 0.0) -> float:
        """Per pair written key after key."""
        return along(self.keyed, matches) + hashed * self.repeat

    def reaching(self, matches: float, within: float) -> float:
        """Per pair besides, where so many tuples lie in a window: what was there last is in no near cache any more."""
        return along(self.far, within) / sqrt(max(1.0, matches))

    def coding(self, keys: float, hashed: float, *, sparse: bool = False) -> float:
        """Per tuple: its key as joins take it, where so many are distinct and a share of the tuples has text.

        sparse: whether numbers are far apart.
        """
        number = self.code + (along(self.dense, keys) if sparse else 0.0)
        return number + hashed * (along(self.encode, keys) - number)

    def joining(self, keys: float, matches: float, *, chained: bool = False) -> float:
        """Per tuple: the exact join, where a tuple completes so many pairs.  chained: of many in a short window."""
        return (self.chain if chained else along(self.join, keys)) + self.branch * min(1.0, matches)

    def listing(self, keys: float) -> float:
        """Per tuple: its place in its key's list, and its key's pairs counted."""
        return along(self.list, keys)

    def counting(self, keys: float) -> float:
        """Per tuple: its matches counted and its place listed."""
        return along(self.count, keys)


PRICES = Prices()
"""As measured on two cores of a server, warm kernels, data in memory."""
