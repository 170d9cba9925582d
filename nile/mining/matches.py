"""Matching against a library: the pattern that a list of numbers is most similar to."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.summaries.errors import ConfigError
from nile.summaries.heavy import pa

__all__ = ["NONE", "Matcher", "named_lists"]

Array = np.ndarray[Any, Any]
NONE = "none"
"""What a list is that is further than `within` from every pattern."""
_MEASURES = ("cosine", "euclidean", "chi-square")


def named_lists(library: pa.Table) -> tuple[list[str], Array]:
    """(names, their lists as float64 [n, width]) of a library; rows with a null are none.  Raises ConfigError."""
    rows = [row for row in library.to_pylist() if None not in row.values()]
    names, lists = library.schema.names[:2] if library.num_columns == 2 else ("", "")
    widths = {len(row[lists]) if isinstance(row[lists], list) else 0 for row in rows} if names else set()
    if len(widths) != 1 or 0 in widths:
        raise ConfigError(
            "MATCHES, library: needed two columns, a name and a list of numbers, all lists of one length; got "
            f"{', '.join(f'{each.name} {each.type}' for each in library.schema)} with {len(rows)} rows"
        )
    return [str(row[names]) for row in rows], np.array([row[lists] for row in rows], np.float64)


class Matcher:
    """The nearest pattern of a library, for each list; "none" where it is further than `within`.

    library: rows with a name (text) and a pattern (list of numbers), two columns in this order.
    cosine: 1 - the cosine of the angle between them, 0 to 2; euclidean; chi-square: of counts, how far they are from
    the pattern scaled to as many, per degree of freedom (about 1 for counts that are drawn from it; where a pattern
    has none, a thousandth of one is expected).  A list of another length, with nulls, or all zeros but under euclidean,
    is "none" at a distance of infinity.
    Cost: O(patterns * their length) a list.  Source: STEAM, sections 7.1 and 7.2.
    """

    def __init__(self, library: pa.Table, measure: str, within: float) -> None:
        """Raises ConfigError."""
        if measure not in _MEASURES or not within >= 0:
            known = ", ".join((*_MEASURES, "tree"))
            raise ConfigError(f"MATCHES: needed measure among {known} and within from 0; got {measure!r}, {within:g}")
        self._measure, self._within = measure, within
        self._names, self._patterns = named_lists(library)

    @property
    def width(self) -> int:
        """Numbers of a pattern."""
        return int(self._patterns.shape[1])

    def push(self, at: Array, ts: Array, values: Array) -> list[tuple[int, int, tuple[Any, ...]]]:
        """values: float64 [n, width]; a row of another length is all NaN."""
        distances = self._distances(values)
        best = np.argmin(distances, axis=1)
        found = []
        for k, nearest in enumerate(best.tolist()):
            distance = float(distances[k, nearest])
            name = self._names[nearest] if distance <= self._within and np.isfinite(distance) else NONE
            found.append((int(at[k]), int(ts[k]), (name, distance)))
        return found

    def finish(self) -> list[tuple[int, int, tuple[Any, ...]]]:
        return []

    def _distances(self, values: Array) -> Array:
        found = np.full((len(values), len(self._names)), np.inf)
        usable = np.isfinite(values).all(axis=1)
        if self._measure != "euclidean":
            usable &= (values != 0).any(axis=1)
        for k, pattern in enumerate(self._patterns):
            rows = values[usable]
            if self._measure == "euclidean":
                told = np.sqrt(((rows - pattern) ** 2).sum(axis=1))
            elif self._measure == "cosine":
                norm = np.sqrt((rows**2).sum(axis=1)) * np.sqrt((pattern**2).sum())
                told = np.full(len(rows), np.inf) if not pattern.any() else 1.0 - (rows * pattern).sum(axis=1) / norm
            else:
                total = pattern.sum()
                if not total > 0:
                    continue
                expected = np.maximum(rows.sum(axis=1)[:, None] * pattern / total, 1e-3)
                told = ((rows - expected) ** 2 / expected).sum(axis=1) / max(self.width - 1, 1)
            found[usable, k] = told
        return found
