"""The outliers of a join, found and missed, as a list that can be read."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nile.operators.inputs.joining import Joinable
from nile.report.accuracy.short_values import key_text
from nile.report.metrics import ExactPairs, Obtained
from nile.report.pages.heatmap import moment
from nile.report.wording import duration, grouped_digits

__all__ = ["OutlierPair", "Outliers", "outliers_of"]

LISTED = 50
"""Pairs that are listed of the found, and of the missed."""


@dataclass(frozen=True, slots=True)
class OutlierPair:
    """One pair.  left, right: ordinals; left_ts, right_ts: ns; count: tuples of its key in the window then."""

    key: str
    left: int
    right: int
    left_ts: int
    right_ts: int
    count: int

    def words(self) -> str:
        """The pair in a line."""
        apart = duration(abs(self.left_ts - self.right_ts) / 1e9)
        return f"{self.key}: {moment(self.left_ts)} with {moment(self.right_ts)}, {apart} apart, {self.count} tuples"


@dataclass(frozen=True, slots=True)
class Outliers:
    """cap: the most tuples of a key in the window that make a pair an outlier; found, missed: how many; the lists: the
    rarest of them first, LISTED at most.  rarest: least tuples of a key in the window of any pair, None without pairs.
    """

    cap: int
    found: int
    missed: int
    rarest: int | None
    found_pairs: tuple[OutlierPair, ...]
    missed_pairs: tuple[OutlierPair, ...]

    @property
    def total(self) -> int:
        """All outliers of the exact answer."""
        return self.found + self.missed

    def reading(self) -> str:
        """What was found, in a sentence."""
        if not self.total:
            least = "there are no pairs" if self.rarest is None else f"the rarest key of a pair has {self.rarest}"
            return f"The exact answer has no outlier: no pair whose key has at most {self.cap} tuples, {least}."
        return (
            f"Of {grouped_digits(self.total)} outliers (pairs whose key has at most {self.cap} tuples in the window) "
            f"{grouped_digits(self.found)} were found and {grouped_digits(self.missed)} missed."
        )

    def record(self) -> dict[str, Any]:
        """As it stands in the JSON."""
        return {**asdict(self), "total": self.total}


def outliers_of(joined: Joinable, exact: ExactPairs, obtained: Obtained, cap: int) -> Outliers:
    """Every outlier of the exact answer, found or missed.  O(N log N) in its pairs."""
    rare = exact.outliers(cap)
    rows = exact.rows_of(obtained.left, obtained.right)
    got = np.zeros(len(exact), np.bool_)
    got[rows[rows >= 0]] = True
    rarest = int(exact.window_count.min()) if len(exact) else None
    lists = []
    for chosen in (rare & got, rare & ~got):
        at = np.flatnonzero(chosen)
        first = at[np.lexsort((exact.right[at], exact.left[at], exact.window_count[at]))][:LISTED]
        lists.append(tuple(_pair(joined, exact, int(row)) for row in first))
    return Outliers(cap, int((rare & got).sum()), int((rare & ~got).sum()), rarest, lists[0], lists[1])


def _pair(joined: Joinable, exact: ExactPairs, row: int) -> OutlierPair:
    left, right = int(exact.left[row]), int(exact.right[row])
    return OutlierPair(
        key_text(joined.left.key[left]), left, right, int(joined.left.ts[left]), int(joined.right.ts[right]),
        int(exact.window_count[row]),
    )  # fmt: skip
