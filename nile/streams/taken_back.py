"""Tuples that a live stream keeps no more, as standing queries are told of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.summaries.heavy import pa

__all__ = ["TakenBack"]


@dataclass(frozen=True, slots=True)
class TakenBack:
    """Tuples that are there no more from the instant `at` on.

    places: int64 [n], ascending, where they were among the `kept` ones; ts: int64 [n] ns; rows: all columns [n].
    """

    at: int
    places: np.ndarray[Any, Any]
    kept: int
    ts: np.ndarray[Any, Any]
    rows: pa.RecordBatch
