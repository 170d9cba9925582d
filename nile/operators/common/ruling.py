"""What a shared summary tells a query of one stream: where none of the values it asks for can be."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.pyramid.grid.manager import SummaryManager
from nile.summaries.costs import CostTable

__all__ = ["ASKED_SHARE", "after_asking", "ruled_out"]

Array = np.ndarray[Any, Any]
ASKED_SHARE = 0.2
"""Of what may be spent, at most this goes into asking a shared summary where not to look."""


def ruled_out(summary: SummaryManager | None, keys: Array, costs: CostTable, most: float) -> tuple[Array | None, float]:
    """Runs of tuples that certainly have none of these keys, and what it cost to ask, in units of the table.

    keys: uint64 hashes [n], 0 that of null, which summaries do not count; int64 [runs, 2], ordinals [begin, end).
    None: there is no summary, null is among the keys, or asking for so many of them might cost more than `most`.
    """
    if summary is None or not keys.all():
        return None, 0.0
    each = costs.estimate_sketch(summary.spec.rows) * keys.shape[0]
    if 2 * each * len(summary.zones()) > most:
        return None, 0.0
    runs, read = summary.without(keys)
    return runs, read * each


def after_asking(grant: Array, paid: float) -> Array:
    """What arrivals grant, float64 [n], when asking has been paid for: each gives up the same share.

    What is known before the first tuple comes is of use to all.  Were it paid for out of what the first ones grant,
    these would be shed, and what the last ones grant would be left over.
    """
    if not paid or not grant.any():
        return grant
    reached = np.cumsum(grant)
    left = max(0.0, float(reached[-1]) - paid)
    reached = np.floor(reached * (left / float(reached[-1])))
    reached[-1] = left
    return np.diff(reached, prepend=0.0)
