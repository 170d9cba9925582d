"""The level of key hashes that each output of a weighted join came under, and the sample of keys that makes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nile.operators.join.follower import is_timed
from nile.operators.join.join import Outputs, PromisingJoin
from nile.operators.join.sampler import Sampler
from nile.operators.multiway.multiway import Combinations, MultiwayJoin
from nile.preferences import state as st
from nile.preferences.key_sample import KeySample, missing_of, stood_for

__all__ = ["combination_sample", "pair_sample"]

Array = np.ndarray[Any, Any]
_MISSING = 2.0


def _clipped(level: Array, weight: Array) -> Array:
    """A weight is at least 1 / level: an output is drawn among those of its key besides."""
    return np.clip(level, 1.0 / weight, 1.0)


def _pair_level(join: PromisingJoin, part: Outputs) -> Array:
    left_admission, right_admission = join.state.left_admission, join.state.right_admission
    if join.state.setting[st.SHARED] or (join.sampler is not None and part.side is not None):
        # Neither a query's own level nor a record's coins are kept: as if keys alone were drawn, which is wider.
        return 1.0 / part.weight if sum(join.figures.shed) else np.ones(part.weight.shape[0])
    if part.side is None:
        return _clipped(np.minimum(left_admission[part.left], right_admission[part.right]), part.weight)
    level = np.empty(part.weight.shape[0])
    for side, admissions in enumerate((left_admission, right_admission)):
        mine = part.side == side
        level[mine] = admissions[part.left[mine]]
    return _clipped(level, part.weight)


def pair_sample(join: PromisingJoin, parts: list[Outputs]) -> KeySample:
    """The sample that the outputs of a weighted run are, pairs or range records.  O(outputs + tuples)."""
    data, state = join.data, join.state
    keys, levels = [np.zeros(0, np.int64)], [np.zeros(0)]
    for part in parts:
        key = data.left.codes[part.left] if part.side is None else np.zeros(part.left.shape[0], np.int64)
        if part.side is not None:
            for side, encoded in enumerate((data.left, data.right)):
                mine = part.side == side
                key[mine] = encoded.codes[part.left[mine]]
        keys.append(key.astype(np.int64))
        levels.append(_pair_level(join, part))
    level = np.concatenate(levels)
    if join.sampler is not None and join.plan.output == "pairs":
        return _planned_sample(join, parts, level, np.concatenate(keys))
    admissions = (state.left_admission, state.right_admission)
    unseen, missed = 0.0, None
    if not state.setting[st.SHARED] and any((admission[admission > 0.0] < 1.0).any() for admission in admissions):
        streams = [
            (int((encoded.codes >= 0).sum()), admission[admission > 0.0])
            for encoded, admission in zip((data.left, data.right), admissions, strict=True)
        ]
        unseen, missed = missing_of(stood_for(streams), join.plan.window, _span(data.left_ts, data.right_ts))
    weight = np.concatenate([np.zeros(0), *(part.weight for part in parts)])
    return KeySample(weight, level, np.concatenate(keys), unseen, missed=missed)


def _planned_sample(join: PromisingJoin, parts: list[Outputs], level: Array, key: Array) -> KeySample:
    """The sample where tuples have coins of their own, too."""
    assert join.sampler is not None
    data, state = join.data, join.state
    none = np.zeros(0, np.int64)
    at = [np.concatenate([none, *(part.left if side == 0 else part.right for part in parts)]) for side in (0, 1)]
    thinned = join.sampler.thinned
    sides = zip((data.left, data.right), (state.left_admission, state.right_admission), thinned, strict=True)
    unseen, missed = 0.0, None
    if any((admission[admission > 0.0] < 1.0).any() for admission in (state.left_admission, state.right_admission)):
        streams = [
            (int((encoded.codes >= 0).sum()), (admission * coin)[coin > 0.0]) for encoded, admission, coin in sides
        ]
        unseen, missed = missing_of(stood_for(streams), join.plan.window, _span(data.left_ts, data.right_ts))
    weight = np.concatenate([np.zeros(0), *(part.weight for part in parts)])
    coins = ((at[0], thinned[0][at[0]]), (at[1], thinned[1][at[1]]))
    sampler = join.sampler
    foreseen = (lambda: sampler.foreseen) if isinstance(sampler, Sampler) else None
    return KeySample(weight, level, key, unseen, coins, missed, foreseen)


def combination_sample(join: MultiwayJoin, parts: list[Combinations]) -> KeySample:
    """As `pair_sample`, of a join of n streams."""
    data, admissions = join.data, join.state.admissions
    keys, levels = [np.zeros(0, np.int64)], [np.zeros(0)]
    for part in parts:
        members = part.probing[:, None] if part.members is None and part.probing is not None else part.members
        assert members is not None
        keys.append(data.key[members[:, 0]].astype(np.int64))
        levels.append(_clipped(admissions[members].min(axis=1), part.weight))
    coins = join.state.coins if join.followed else np.ones(admissions.shape[0])
    drawn: tuple[tuple[Array, Array], ...] = ()
    if join.followed:
        none = np.zeros((0, data.streams), np.int64)
        at = np.concatenate([none, *(part.members for part in parts if part.members is not None)])
        drawn = tuple((at[:, k], coins[at[:, k]]) for k in range(data.streams))
    unseen, missed = 0.0, None
    came_in = admissions * coins > 0.0
    if (admissions[came_in] < 1.0).any():
        known = data.key >= 0
        streams = [
            (int((known & (data.stream == k)).sum()), (admissions * coins)[came_in & (data.stream == k)])
            for k in range(data.streams)
        ]
        unseen, missed = missing_of(stood_for(streams), join.plan.window, _span(data.ts))
    weight = np.concatenate([np.zeros(0), *(part.weight for part in parts)])
    whole = join.state.whole
    if (not join.followed or join.plan.output == "ranges") and whole[st.APPLIED] < whole[st.ARRIVED]:
        unseen, missed = math.inf, None  # tuples that waited for credit when the input ended stand in no weight
    if is_timed(join.plan):
        missed = None  # tuples that came in late stand for none of those that were turned away
        unseen += _not_stood_for(join, weight, np.where(came_in, admissions * coins, math.inf))
    return KeySample(weight, np.concatenate(levels), np.concatenate(keys), unseen, drawn, missed)


def _not_stood_for(join: MultiwayJoin, weight: Array, came: Array) -> float:
    """What a clocked sample's tuples may not stand for: twice the share of tuples that none stands for, of its total.

    Where time runs out late, tuples are thinned that hardly any other stands for, and a sample that missed them looks
    tame.  Of range records, whose tuples have no coins of their own, it is unknown, unless all were found.  came:
    probability of each tuple that did, infinite of others.
    """
    data, costs = join.data, join.plan.costs
    if not join.followed:
        taking = costs.insert + (data.streams - 1) * costs.lookup
        exact = join.figures.exact_cost - taking * join.arrivals
        return 0.0 if weight.shape[0] * costs.emit >= exact - 0.5 * costs.emit else math.inf
    missing = 0.0
    for k in range(data.streams):
        mine = (data.stream == k) & (data.key >= 0)
        missing += max(0.0, 1.0 - float((1.0 / came[mine]).sum()) / max(1, int(mine.sum())))
    return _MISSING * missing * float(weight.sum())


def _span(*times: Array) -> int:
    ends = [int(end) for ts in times if ts.shape[0] for end in (ts[0], ts[-1])]
    return max(ends) - min(ends) if ends else 0
