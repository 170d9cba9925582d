"""Tuples of a join whose key has no partner anywhere near, as shared summaries of the other stream tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from nile.operators.common.data import JoinInput
from nile.operators.common.plan import JoinPlan
from nile.operators.common.ruling import ASKED_SHARE
from nile.operators.inputs.joining import Joinable, KeyedStreams
from nile.operators.join.planned import is_planned
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.manager import SummaryManager
from nile.summaries.hashing import Encoded

__all__ = ["Partners", "can_be_lent", "lent_grids", "without_partners"]

Array = np.ndarray[Any, Any]
_PILOT = 64
_ZONES = 0.1
_WORTH = 1.5
Partners = tuple[SummaryManager | None, ...]
"""The shared summary of each stream's key, which has counted all its tuples; None where there is none."""


def without_partners(joined: Joinable, plan: JoinPlan, summaries: Partners) -> JoinInput:
    """The join's input, tuples without a partner ruled out.

    A tuple is ruled out when every part of the other stream that its window reaches has certainly no tuple of its key.
    Parts are zones, or whole granularities where zones would cost more than a tenth of the grant to ask; under times
    that are played back windows are not told by the data's times, and every part is reached.  Some keys are asked for
    first; the others only if what tuples without a partner would cost pays for it.  A join that plans which keys come
    in asks for none: it finds those without partners in its sample, for less than asking costs.
    """
    data = joined.input(plan.costs, ranges=plan.output == "ranges")
    if plan.method != "nile" or plan.is_exact or not any(summaries) or summaries[0] is summaries[1]:
        return data
    if is_planned(plan, data):
        return data
    granted = float(data.costs.sum()) * min(1.0, plan.fraction)
    window = None if plan.pace.replay == "exponential" else plan.window
    out = np.zeros(data.order.shape[0], bool)
    asked, sides = 0.0, [data.left, data.right]
    for side, (ts, keys, other) in enumerate(
        zip((data.left_ts, data.right_ts), sides, (summaries[1], summaries[0]), strict=True)
    ):
        if other is None or other.forgotten or other.keys.kind != joined.keys.kind:
            continue
        codes, first, times = np.unique(keys.codes, return_index=True, return_counts=True)
        codes, first, times = (each[codes >= 0] for each in (codes, first, times))
        zones = window is not None and plan.costs.estimate * codes.shape[0] * len(other.zones()) < _ZONES * granted
        read_of = (
            len(other.zones()) if zones else sum(other.index(g).count(1) > 0 for g in range(1, other.spec.depth + 1))
        )
        if plan.costs.estimate * codes.shape[0] * read_of > ASKED_SHARE * granted:
            continue  # one row of each is too much: not even some keys are asked for
        saved = plan.costs.insert + plan.costs.lookup
        step = max(1, codes.shape[0] // _PILOT)
        parts, read = other.empty_of(keys.hashes[first[::step]], zones=zones)
        asked += plan.costs.estimate * read
        cost = plan.costs.estimate * read * step
        absent = np.logical_and.reduce([none for _, _, none in parts]) if parts else np.ones(0, bool)
        if parts and (
            cost > ASKED_SHARE * granted or saved * float(times[::step][absent].sum()) * step < _WORTH * cost
        ):
            continue
        if step > 1:
            parts, read = other.empty_of(keys.hashes[first], zones=zones)
            asked += plan.costs.estimate * read
        alone = _alone(ts, keys, codes, parts, window, data.keys)
        out[data.order == side] = alone
        sides[side] = Encoded(np.where(alone, -1, keys.codes).astype(np.int32), keys.hashes)
    return replace(data, left=sides[0], right=sides[1], ruled_out=out, asked=asked)


def can_be_lent(plan: JoinPlan) -> bool:
    """Whether shared grids of all streams would guide the join in place of grids of its own.

    Not where times are played back anew, or where the join itself forgets.
    """
    guided = plan.guide == "countsketch" and plan.method == "nile" and not plan.is_exact
    return guided and not plan.spec.forgetting and plan.pace.replay != "exponential"


def lent_grids(joined: KeyedStreams, plan: JoinPlan, summaries: Partners) -> tuple[Side, ...] | None:
    """The grids that guide a join by sketches where all streams have a shared one; None: it keeps grids of its own.

    Grids that have forgotten, or whose keys are of another type, do not guide.
    """
    held = [one for one in summaries if one is not None and not one.forgotten and one.keys.kind == joined.keys.kind]
    if not held or len(held) < len(joined.streams) or not can_be_lent(plan):
        return None
    return tuple(one.lent() for one in held)


def _alone(
    ts: Array, keys: Encoded, codes: Array, parts: list[tuple[int, int, Array]], window: int | None, known: int
) -> Array:
    """Which tuples have a key and no partner in any part that their window reaches: bool [n]."""
    alone: Array = keys.codes >= 0
    there = np.zeros(known + 1, bool)  # the last is for nulls
    for first, last, none in parts:
        begin, end = 0, ts.shape[0]
        if window is not None:
            begin = int(np.searchsorted(ts, max(first - window, -(1 << 63)), side="left"))
            end = int(np.searchsorted(ts, min(last + window, (1 << 63) - 1), side="right"))
        there[codes] = ~none
        alone[begin:end] &= ~there[keys.codes[begin:end]]
    return alone
