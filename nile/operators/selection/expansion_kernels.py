"""Records of a tuple's queries, taken apart into pairs of a query and a tuple."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.summaries.kernels import kernel

Array = np.ndarray[Any, Any]


@kernel
def expand_runs(records: tuple[Array, Array, Array, Array], full: Array, pairs: tuple[Array, Array, Array]) -> None:
    """Each record as the pairs that it stands for.

    records: query, ordinal, at and last, [n]: where last is -1 - k, k >= 2, `query` is the place in `full` of the first
    of k queries; else a pair.  pairs: query, ordinal, at, with room for all of them.
    """
    query, ordinal, at, last = records
    to_query, to_ordinal, to_at = pairs
    place = 0
    for i in range(query.shape[0]):
        if last[i] >= -1:
            to_query[place] = query[i]
            to_ordinal[place] = ordinal[i]
            to_at[place] = at[i]
            place += 1
            continue
        n = -1 - last[i]
        first = query[i]
        for j in range(n):
            to_query[place + j] = full[first + j]
        for j in range(n):
            to_ordinal[place + j] = ordinal[i]
        for j in range(n):
            to_at[place + j] = at[i]
        place += n
