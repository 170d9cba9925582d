"""A small input for any operator, over which it runs through all its kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from nile.operators.common.data import JoinInput
from nile.operators.common.plan import JoinPlan
from nile.preferences.fade import Fade
from nile.summaries.hashing import Encoded, KeyHasher

__all__ = ["EXAMPLE_ARRIVALS", "example_keys", "example_pair", "example_plan", "example_times"]

Array = np.ndarray[Any, Any]
EXAMPLE_ARRIVALS = 4_096
_KEYS = 16


def example_times(plan: JoinPlan, *, streams: int) -> Array:
    """int64 [4,096] ns: one tuple of each stream at a time, so far apart that zones end and granularities turn."""
    step = min(max(1, plan.spec.granularity // 64), 1 << 50)
    return np.arange(EXAMPLE_ARRIVALS, dtype=np.int64) // streams * step


def example_keys(streams: int) -> tuple[Array, Array]:
    """(code of each arrival, int32 [4,096]; hash of each code, uint64 [16]): each stream has every key in turn."""
    codes = (np.arange(EXAMPLE_ARRIVALS) // streams % _KEYS).astype(np.int32)
    return codes, KeyHasher().words(np.arange(_KEYS, dtype=np.int64))


def example_plan(plan: JoinPlan, ts: Array) -> JoinPlan:
    """The plan with a window that a sixteenth of the input falls into.

    And with a fade factor: without one desc turns zones for a small part of the grant alone, and here they must turn.
    """
    if plan.method == "nile" and plan.preference == "desc":
        plan = replace(plan, fade=Fade(0.5))
    return plan if plan.window is None else replace(plan, window=int(ts[-1]) // 16)


def example_pair(plan: JoinPlan) -> tuple[JoinPlan, JoinInput]:
    """The plan as it is for the example, and the example's two streams."""
    ts = example_times(plan, streams=2)
    codes, hashes = example_keys(2)
    order = np.tile(np.array([0, 1], np.int8), EXAMPLE_ARRIVALS // 2)
    sides = [Encoded(codes=codes[order == side], hashes=hashes[codes[order == side]]) for side in (0, 1)]
    data = JoinInput(
        left_ts=ts[order == 0], right_ts=ts[order == 1], left=sides[0], right=sides[1], order=order,
        costs=np.ones(order.shape[0]), keys=hashes.shape[0],
    )  # fmt: skip
    return example_plan(plan, ts), data
