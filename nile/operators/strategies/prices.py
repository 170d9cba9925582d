"""What the steps of a strategy cost, in nanoseconds of CPU: the one place that forecasts and spending are priced at."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from math import log2, sqrt
from typing import TypeAlias

from nile.aggregates.catalogue import CATALOGUE

__all__ = ["PRICES", "Curve", "Prices", "along"]

Curve: TypeAlias = tuple[tuple[float, float], ...]
"""A price by size: (binary logarithm of the size, ns), sizes rising; between them by straight lines, outside as at the
nearest."""

_FILES = ("ParquetSource", "LakeSource", "ManySource")
_BEGUN, _COLUMN, _TEXT = 0.2, 0.17, 0.4
"""Of a tuple read of a file, times and one column: what it takes beside columns, and each column; and of a text."""
_RATIO, _SPREAD = 1.3, 2.3
"""Times what a total of a sample takes: a ratio of two, and a variance."""
_IN_STRATA, _ONE_BY_ONE = 0.7, 16.0
"""Times what a number of a group of a join's outputs takes: 3 and 70 us of groups of a stratified sample."""


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
    otherwise and its time checked, or kept of a file; parquet, read from a file, parquet_text besides where its key
    is text; csv, read from such a file; words, hashing a key of text, and taken, of the few that are looked at;
    seen, counted by the slot of its key, and some keys by themselves; slot, counted so with all others; look, admitted
    or refused, and toss, besides where some have coins; copy, of one that came in, text a key of text besides; code, a
    number as the joins take it; encode, a key of text instead, and dense, numbers far apart besides,
    by how many distinct ones there are; sift, told by its key whether it may have partners; join, the exact join, by
    distinct keys, chain, of many tuples in a short window, and branch where an arrival may or may not find a partner;
    list, its place in its key's list, and its key's pairs counted, by distinct keys; count, its place there, and what
    stands around it, by distinct keys; promise, queues of promising regions.
    Per slot: weigh, what it promises, and its rank.
    Per pair, columns handed out, by how many a tuple has: pair, of the exact join; keyed, written key after key, and
    repeat, besides where the key is text; drawn, of a sample, by how many are drawn of eight; rare, of an outlier;
    named, besides where the key of one of the others is text; far, besides, of the exact join, by how many tuples lie
    in the window, over the root of how many pairs an arrival has.
    Per pair, each other column handed out, by how many tuples its stream has: handed, of numbers, and handed_text.
    Per tuple counted: draw, of a sample of their pairs; tell, what it tells; clique, listed by key among those of more
    streams than two, and its combinations counted.
    Per member of a combination of these, columns handed out: member.
    Per combination that is asked a condition, each column of it, function and comparison: asked.
    Per tuple of an aggregate within time: shuffled, put in a random order; and, of those found, each aggregate:
    estimated, or ordered where it is one of values in order.
    Per tuple of the exact aggregates of one stream: arranged, given the number of its group, or put where that begins;
    tallied, counted, or added as a whole number; added, as a double, by a sum that is rounded once; sorted, among the
    values of its group.
    Per output of a join that is aggregated: made, put together; gathered, each column; summed, each aggregate; grouped,
    each expression of the groups.  Per group: group, each aggregate.
    Per run: begin, what none takes less than; solve, rates of a sample, and what it tells; start, granted beside every
    fraction.
    """

    table: float = 0.05
    read: float = 1.3
    parquet: float = 18.0
    parquet_text: float = 14.0
    csv: float = 243.0
    words: float = 5.1
    taken: float = 9.8
    seen: float = 16.0
    slot: float = 1.5
    weigh: float = 86.0
    look: float = 1.3
    toss: float = 0.58
    copy: float = 1.6
    text: float = 3.8
    code: float = 0.22
    encode: Curve = ((10.0, 9.5), (14.0, 16.0), (17.0, 31.0), (20.0, 63.0))
    dense: Curve = ((10.0, 2.0), (14.0, 2.6), (17.0, 9.1), (20.0, 17.0))
    join: Curve = ((8.0, 6.6), (14.0, 6.8), (17.0, 8.1), (20.0, 13.0))
    sift: float = 2.6
    chain: float = 4.9
    branch: float = 5.5
    count: Curve = ((8.0, 10.0), (14.0, 11.0), (17.0, 13.0), (20.0, 15.0))
    list: Curve = ((8.0, 6.5), (14.0, 7.1), (17.0, 9.2), (20.0, 13.0))
    promise: float = 600.0
    pair: Curve = ((0.0, 10.0), (1.0, 7.2), (3.0, 4.2), (5.0, 2.0), (8.0, 1.6))
    keyed: Curve = ((0.0, 16.0), (1.0, 6.8), (3.0, 2.5), (5.0, 1.2), (8.0, 0.97))
    repeat: float = 0.44
    named: Curve = ((0.0, 2.9), (1.0, 3.8), (3.0, 3.1), (6.0, 2.9))
    far: Curve = ((13.0, 0.05), (14.0, 0.05), (16.0, 0.05), (17.0, 0.73), (18.0, 3.5), (20.0, 54.0))
    handed: Curve = ((14.0, 0.8), (17.0, 0.67), (20.0, 2.6))
    handed_text: Curve = ((14.0, 4.5), (17.0, 4.6), (20.0, 9.7))
    draw: float = 0.095
    drawn: Curve = ((0.0, 46.0), (2.0, 17.0), (4.0, 7.7), (6.0, 4.9))
    rare: float = 30.0
    tell: float = 8.1
    clique: float = 21.0
    member: float = 9.0
    asked: float = 3.2
    shuffled: float = 32.0
    estimated: float = 16.0
    ordered: float = 120.0
    arranged: float = 9.0
    tallied: float = 3.0
    added: float = 3.0
    sorted: float = 150.0
    made: float = 22.0
    summed: float = 24.0
    gathered: float = 7.1
    grouped: float = 4.5
    group: float = 4200.0
    begin: float = 1.4e06
    solve: float = 2.0e05
    start: float = 1.2e7

    def reading(self, source: str, hashed: bool) -> float:
        """Per tuple: read from a source of that class, its key text or not."""
        if source in _FILES:
            return self.parquet + hashed * self.parquet_text
        return {"CsvSource": self.csv, "JsonSource": self.csv, "Table": self.table}.get(source, self.read)

    def reading_columns(self, source: str, numbers: int, texts: int, *, kept: bool) -> float:
        """Per tuple: so many columns beside its time, whether that is kept or not, read from a source of that class.

        `parquet` is a reading of times and of one column.
        """
        if source not in _FILES:
            return self.reading(source, hashed=False)
        return (
            self.parquet * ((_BEGUN if kept else 1.0) + _COLUMN * (numbers + texts)) + _TEXT * self.parquet_text * texts
        )

    def estimating(self, functions: Sequence[str]) -> float:
        """Per tuple of a sample: aggregates of it."""
        return sum(self.ordered if CATALOGUE[each].is_quantile else self.estimated for each in functions)

    def picking(self, size: float, tested: int) -> float:
        """Per tuple drawn of so many, and put to conditions.  tested: columns in them.

        What is drawn is marked in a table of a sixteenth of the bytes of one that codes numbers.
        """
        return along(self.dense, size / 16.0) + tested * (self.copy + self.asked)

    def sampling(self, functions: Sequence[str], kinds: Sequence[str]) -> float:
        """Per tuple of a sample that satisfies: its groups and aggregates.  kinds: of the groups (`Node.kind`)."""
        one = sum(along(self.encode if kind == "text" else self.dense, 1.0) for kind in kinds)
        one += (self.grouped + self.arranged) * len(kinds)
        for each in functions:
            kind = CATALOGUE[each]
            times = _SPREAD if kind.is_spread else 1.0 if kind.interval == "total" else _RATIO
            one += self.ordered if kind.is_quantile else times * self.estimated
            one += 2.0 * along(self.encode, 1 << 17) if kind.is_set else 0.0
        return one

    def grouping(self, functions: Sequence[str]) -> float:
        """Per group of a sample of one stream: all its numbers, in strata, and one by one where values are in order."""
        return sum(
            self.group * (_ONE_BY_ONE if CATALOGUE[each].is_quantile or CATALOGUE[each].is_set else _IN_STRATA)
            for each in functions
        )

    def testing(self, tested: int, texts: int) -> float:
        """Per tuple of exact aggregates of a stream: its conditions.  tested: columns in them; texts: such of text."""
        return self.look * (1 + tested) + 2.0 * self.text * texts if tested else 0.0

    def taking(
        self, functions: Sequence[str], kinds: Sequence[str], by: Sequence[str], keys: float, copied: int
    ) -> float:
        """Per tuple that satisfies these: its groups and aggregates, as exact SQL works them out by columns.

        kinds, by: what the values of each aggregate and each expression of the groups are (`Node.kind`); keys: groups;
        copied: columns of those that satisfy, where there are conditions.
        """
        one = (
            self.copy * copied
            + sum(along(self.encode if kind == "text" else self.dense, keys) for kind in by)
            + self.arranged * min(1, len(by))
        )
        for function, of in zip(functions, kinds, strict=True):
            kind = CATALOGUE[function]
            if kind.is_quantile:
                one += self.sorted
            elif kind.is_set:
                one += (
                    along(self.encode, 1 << 14) if of == "text" else along(self.dense, 1 << 17)
                ) + 2.0 * self.arranged
            elif "total" in kind.parts and (of == "number" or kind.is_spread):
                one += self.added * (3.0 if kind.is_spread else 1.0)
            else:
                one += self.tallied * (5.0 if "low" in kind.parts or "high" in kind.parts else 1.0)
        return one

    def finding(self, kinds: Sequence[str]) -> float:
        """Per tuple: look stored rows up, once for each kind of key (`Node.kind`), and take a column of them."""
        return sum(along(self.encode if kind == "text" else self.dense, 1 << 14) + self.gathered for kind in kinds)

    def pairing(self, matches: float, hashed: float = 0.0) -> float:
        """Per pair of the exact join, where a tuple of either stream completes so many.  hashed: share of text."""
        return along(self.pair, matches) + hashed * along(self.named, matches)

    def drawing(self, few: float, hashed: float = 0.0) -> float:
        """Per pair of a sample, of which a tuple has so many."""
        return along(self.drawn, 8.0 * few) + hashed * along(self.named, few)

    def of_outlier(self, hashed: float = 0.0) -> float:
        """Per pair of an outlier."""
        return self.rare + hashed * along(self.named, 1.0)

    def keying(self, matches: float, hashed: float = 0.0) -> float:
        """Per pair written key after key."""
        return along(self.keyed, matches) + hashed * self.repeat

    def handing(self, tuples: float, *, text: bool) -> float:
        """Per pair: a column of a stream of so many tuples."""
        return along(self.handed_text if text else self.handed, tuples)

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
        """Per tuple: its place in its key's list, and what stands around it."""
        return along(self.count, keys)


PRICES = Prices()
"""As measured on two cores of a server, warm kernels, data in memory."""
