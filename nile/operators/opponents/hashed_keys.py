"""Which keys `hash-keys` joins: the exact answer of a share of the keys, chosen by their hash, at the cost granted.

Design.  What each key costs the exact answer is known beforehand, as what `shed-uniform` keeps is worked out from the
exact pass: keys are taken in the order of their hashes while the grant lasts.  A key that alone costs more than the
grant is passed over.  Under `weighted` the first other key that no longer fits ends the sample, and its hash is the
share p of the keys: lowering the hash of a key that is in changes neither who is in nor p, so weights 1 / p are
unbiased over all keys that fit alone (Ting, Adaptive Threshold Sampling, SIGMOD 2022; Cohen and Kaplan, PODC 2007).
Under `desc` and `asc`, which do not weigh, later keys that still fit are taken as well.
Cost.  O(arrivals), and a sort of the keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.operators.common.data import JoinInput
from nile.operators.common.plan import JoinPlan
from nile.summaries.hashing import mixed

__all__ = ["chosen_keys"]

Array = np.ndarray[Any, Any]


def chosen_keys(plan: JoinPlan, data: JoinInput, salt: int) -> tuple[Array, float]:
    """The keys that are joined, bool [keys] by code, and what each pair stands for.  salt: of the hashes."""
    if plan.fraction >= 1.0:
        return np.ones(data.keys, bool), 1.0
    place = _units(data, salt)
    cost = _costs(plan, data)
    grant = plan.fraction * float(data.costs.sum())
    order = np.argsort(place, kind="stable")
    chosen, share = np.zeros(data.keys, bool), 1.0
    while True:
        order = order[cost[order] <= grant]
        many = int(np.searchsorted(np.cumsum(cost[order]), grant, side="right"))
        chosen[order[:many]] = True
        if many == order.shape[0]:
            break
        if plan.preference == "weighted":
            share = float(place[order[many]])
            break
        grant -= float(cost[order[:many]].sum())
        order = order[many + 1 :]
    return chosen, 1.0 / share if share > 0.0 else 1.0


def _units(data: JoinInput, salt: int) -> Array:
    """Where in [0, 1) each key lies: float64 [keys], as `nile.preferences.arrival_kernels.unit`."""
    hashes = np.zeros(data.keys, np.uint64)
    for side in (data.left, data.right):
        keyed = side.codes >= 0
        hashes[side.codes[keyed]] = side.hashes[keyed]
    units: Array = (mixed(hashes + np.uint64(salt)) >> np.uint64(11)) * 2.0**-53
    return units


def _costs(plan: JoinPlan, data: JoinInput) -> Array:
    """What each key costs: float64 [keys].  Under asc an arrival with more matches than the cap emits none."""
    codes = np.empty(data.order.shape[0], np.int64)
    codes[data.order == 0], codes[data.order == 1] = data.left.codes, data.right.codes
    costs = data.costs
    if plan.preference == "asc":
        taking = plan.costs.insert + plan.costs.lookup
        most = plan.outlier_cap * plan.costs.emit
        costs = np.where((codes >= 0) & (costs - taking > most), taking, costs)
    keyed = codes >= 0
    found: Array = np.bincount(codes[keyed], weights=costs[keyed], minlength=data.keys)
    return found
