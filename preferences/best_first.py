"""Which parts of the key space are worth their tuples, by samples of an input before its first tuple is joined.

Design.  Parts of the key space are ranked by the matches that a tuple of theirs finds, which is what a join gets for
what it pays.  How many tuples a part has that a sample met once, twice or three times is told by how many parts it
met once more often (Good, The population frequencies of species, Biometrika 1953); parts that it did not meet share
what is left.  What tuples are expected to cost is told by segment of the input, since keys come and go.
Outliers are so few, or so few of the pairs, that tuples at random tell little of them: those that seem to complete
some are a sample of their own.
Cost.  O(parts * segments).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "Expected", "Ranked", "Seen", "completed", "expected_of", "is_telling", "likely_outliers", "matches_before",
    "ranked",
]  # fmt: skip

Array = np.ndarray[Any, Any]
_CORRECTED = 3  # times that a part was met, up to which luck may be most of it
_FIRM = 2.0  # tuples of a sample by which a part is known to be unlike the others
_EVENLY = 2.0  # tuples of a sample that tell as much of a part's segments as all parts together do
_LIKE_OTHERS = 1.0  # and of the matches of its tuples
_SHAPE, _SHAPE_OF_SIZES = 3.0, 2.0  # of Gamma distributions: of arrivals that complete outliers, and of tuples
_FEW = 8.0  # tuples of a sample that tell as much of parts alike as what is usual does
_HALVINGS = 40
_SURELY = 0.9  # of what they seem to be worth: young pairs alone, whose number is told less well than that of all


class Seen(NamedTuple):
    """A sample of an input's tuples by part of the key space and segment; and all of the input by segment.

    evened: pairs, were windows equally full at all times.
    """

    tuples: Array  # float64 [parts, segments]
    pairs: Array  # float64 [parts, segments]: those that the sampled tuples complete
    evened: Array  # float64 [parts]
    all_tuples: Array  # float64 [segments]
    all_pairs: Array  # float64 [segments]


class Expected(NamedTuple):
    """What each part is expected to have in each segment, and how many matches a tuple of it finds."""

    tuples: Array  # float64 [parts, segments]
    pairs: Array  # float64 [parts, segments]
    each: Array  # float64 [parts]


class Ranked(NamedTuple):
    """Parts in their order, best first: rungs.  What rungs before r cost from the begin of segment s on is [r, s]."""

    rung: Array  # int64 [parts]: the place of each
    cut: Array  # int64 [parts]: of each rung, the last granularity whose pairs are asked for
    to_come: Array  # float64 [parts + 1, segments + 1]: as expected, of rungs that were not counted
    sure: Array  # float64 [parts + 1, segments + 1]: of those that were
    is_sure: Array  # bool [parts]: of each rung


def expected_of(seen: Seen) -> Expected:
    """What the parts of an input have, by a sample of it."""
    times = seen.tuples.sum(axis=1)
    found = seen.pairs.sum(axis=1)
    tuples, pairs = float(seen.all_tuples.sum()), float(seen.all_pairs.sum())
    often = _corrected(times)
    unseen = tuples / max(1.0, float(times.sum())) - 1.0  # tuples for each of the sample
    mean = found / np.maximum(1.0, times)
    size = np.where(times > 0.0, times + often * max(0.0, unseen), 0.0)
    rest = max(0.0, tuples - float(size.sum())) / times.shape[0]
    size += (1.0 - often / np.maximum(1.0, times)) * rest
    firm = often >= _FIRM
    others = max(1.0, tuples - float(size[firm].sum()))
    usual = min(max(0.0, pairs - float((size * mean)[firm].sum())) / others, pairs / max(1.0, tuples))
    each = (found + _LIKE_OTHERS * usual) / (times + _LIKE_OTHERS)
    evened = np.where(is_telling(seen), (seen.evened + _LIKE_OTHERS * usual) / (times + _LIKE_OTHERS), usual)
    when = _by_segment(seen.tuples, seen.all_tuples, np.full(times.shape[0], _EVENLY))
    when_found = _by_segment(seen.pairs, seen.all_pairs, _EVENLY * np.maximum(each, 1e-9))
    return Expected(size[:, None] * when, (size * each)[:, None] * when_found, evened)


def likely_outliers(matches: Array, side: Array, cap: int) -> Array:
    """How many outliers each arrival seems to complete, as far as its matches tell: float64 [n].

    matches: float64 [n]; side: int8 [n], the stream of each.  A pair is one if its key's tuples in both windows are at
    most the cap.  Those of the other stream are the matches; that those of its own are few enough is as likely as that
    pairs which the other stream completes have so few matches.
    """
    out = np.zeros(matches.shape[0])
    few = (matches > 0.0) & (matches < cap)
    for one in (0, 1):
        theirs = np.rint(matches[side != one]).astype(np.int64)
        pairs = np.bincount(np.minimum(theirs, cap), weights=theirs, minlength=cap + 1)
        share = np.cumsum(pairs) / max(1.0, float(pairs.sum()))
        mine = few & (side == one)
        out[mine] = matches[mine] * share[cap - np.rint(matches[mine]).astype(np.int64)]
    return out


def matches_before(matches: Array, codes: Array, side: Array, times: Array, window: int | None) -> Array:
    """How many tuples of its key and stream a window held as one of the other stream told last: float64 [n].

    matches: float64 [n], those of each arrival in the other stream; codes: int32 [n], its key; side: int8 [n]; times:
    int64 [n], ns.  Infinite where the window before the arrival holds no tuple of the other stream.  O(n log n).
    """
    at = np.argsort(codes, kind="stable")
    place = np.arange(at.shape[0])
    last = [np.maximum.accumulate(np.where(side[at] == one, place, -1)) for one in (0, 1)]
    told = np.where(side[at] == 0, last[1], last[0])
    by = at[told]
    known = (told >= 0) & (codes[by] == codes[at])
    if window is not None:
        known &= times[at] - times[by] <= window
    out = np.empty(matches.shape[0])
    out[at] = np.where(known, matches[by], np.inf)
    return out


def completed(expected: Expected, times: Array, met: Array, found: Array, outliers: Array) -> Expected:
    """The same, whose pairs are the outliers that a sample of the arrivals that complete some tells of.

    times: float64 [parts], tuples of the sample that `expected` was made of, which tells sizes; met, found: float64
    [parts, segments], those of the other sample and what they seem to complete; outliers: float64 [segments], what all
    arrivals seem to complete.  What a part has beside those that were met is a mean of its own rate and of what its
    size makes likely (Gamma and Poisson).
    """
    often, seen = met.sum(axis=1), float(met.sum())
    if not seen:
        return expected
    size, share = expected.tuples.sum(axis=1), min(1.0, float(found.sum()) / max(1e-9, float(outliers.sum())))
    likely = seen / share * size / max(1.0, float(size.sum()))
    unmet = (1.0 - share) * likely * (_SHAPE + often) / (_SHAPE + share * likely)
    each = (found.sum(axis=1) + float(found.sum()) / seen) / (often + 1.0)
    pairs = found.sum(axis=1) + unmet * each
    known = np.maximum(size, _sizes(often, times, float(size.sum())))
    known = np.maximum(known, np.where(often > 0.0, 1.0 + often, 0.0))
    when = _by_segment(expected.tuples, expected.tuples.sum(axis=0), np.full(often.shape[0], 1e-9))
    tuples = (known * (float(size.sum()) / max(1e-9, float(known.sum()))))[:, None] * when
    when = _by_segment(met, outliers, np.full(often.shape[0], _EVENLY))
    return Expected(tuples, pairs[:, None] * when, pairs / np.maximum(1e-9, known))


def _sizes(often: Array, times: Array, tuples: float) -> Array:
    """How many of so many tuples each part has, as others of which as many arrivals were met do: float64 [parts].

    often: float64 [parts], arrivals that were met; times: float64 [parts], tuples of a sample that has nothing to do
    with those.  Parts that look small by luck in the latter would else be taken for the best of all.
    """
    rate = float(times.sum()) / max(1.0, tuples)
    if not rate:
        return np.zeros(often.shape[0])
    like = np.ceil(np.log2(1.0 + often)).astype(np.int64)
    many = np.bincount(like)
    usual = tuples / often.shape[0] + np.bincount(like, weights=2.0 * often) / np.maximum(1, many)
    mean = (np.bincount(like, weights=times) + _FEW) / (rate * many + _FEW / np.maximum(1e-9, usual))
    sizes: Array = (_SHAPE_OF_SIZES + times) / (_SHAPE_OF_SIZES / np.maximum(1e-9, mean[like]) + rate)
    return sizes


def is_telling(seen: Seen) -> Array:
    """Which parts a sample tells something of: one tuple without a match is as most are.  bool [parts]."""
    told: Array = (seen.tuples.sum(axis=1) >= _FIRM) | (seen.pairs.sum(axis=1) > 0.0)
    return told


def _corrected(times: Array) -> Array:
    """How often a part is to be met in a sample of the same size, for each that was met so often."""
    often = times.copy()
    parts = np.bincount(np.minimum(times, _CORRECTED + 1).astype(np.int64), minlength=_CORRECTED + 2)
    parts[_CORRECTED + 1] = np.count_nonzero(times == _CORRECTED + 1)
    for n in range(1, _CORRECTED + 1):
        if parts[n]:
            often[times == n] = min(n, (n + 1) * parts[n + 1] / parts[n])
    return often


def _by_segment(of_parts: Array, of_all: Array, weight: Array) -> Array:
    """Each part's tuples, or pairs, by segment, in shares: its own and, by weight, those of all parts."""
    total = float(of_all.sum())
    all_shares = of_all / total if total > 0.0 else np.full(of_all.shape[0], 1.0 / max(1, of_all.shape[0]))
    own = of_parts + weight[:, None] * all_shares
    shares: Array = own / own.sum(axis=1, keepdims=True)
    return shares


def ranked(
    expected: Expected, taking: float, emitting: float, counted: Array, share: Array, fades: Array, budget: float
) -> Ranked:
    """Parts by what a unit of cost finds, most first, and what they cost.

    taking, emitting: what a tuple and a pair cost; counted: bool [parts], those whose sizes are certain.  share:
    float64 [granularities], of the pairs those that are no older than each, 1 at last; fades: float64 [granularities],
    what a pair of each is worth.  Under a fade factor each part is asked for the granularities by which so much
    budget finds most (Lagrange's multiplier, by bisection); else for all, and parts go by the matches of a tuple.
    """
    parts, last = expected.each.shape[0], share.shape[0] - 1
    cut, order = np.full(parts, last), np.argsort(-expected.each, kind="stable")
    if fades[-1] < 1.0:
        tuples = expected.tuples.sum(axis=1)
        pairs = (tuples * expected.each)[:, None]
        worth = pairs * np.cumsum(np.diff(share, prepend=0.0) * fades)
        worth[:, :-1] *= _SURELY
        cut = _cuts(taking * tuples[:, None] + emitting * pairs * share, worth, budget)
    rung = np.empty_like(order)
    rung[order] = np.arange(parts)
    spending = (taking * expected.tuples + emitting * share[cut][:, None] * expected.pairs)[order]
    is_sure = (counted & (cut == last))[order]
    expecting = _to_come(np.where(is_sure[:, None], 0.0, spending))
    return Ranked(rung, cut[order], expecting, _to_come(spending * is_sure[:, None]), is_sure)


def _cuts(cost: Array, worth: Array, budget: float) -> Array:
    """Of each part the granularity to stop at: int64 [parts].

    cost, worth: float64 [parts, granularities], of all up to each.
    """
    rows = np.arange(cost.shape[0])
    rate = worth / np.maximum(1e-9, cost)
    price, cut = 0.0, np.argmax(worth, axis=1)
    low, high = 0.0, float(rate.max())
    for _ in range(_HALVINGS):
        price = 0.5 * (low + high)
        cut = np.argmax(worth - price * cost, axis=1)
        dear = float(cost[rows, cut][worth[rows, cut] > price * cost[rows, cut]].sum()) > budget
        low, high = (price, high) if dear else (low, price)
    gains = worth[rows, cut] > price * cost[rows, cut]
    chosen: Array = np.where(gains, cut, np.argmax(rate, axis=1))
    return chosen


def _to_come(cost: Array) -> Array:
    """Of the rungs before each one, from the begin of each segment on.  cost: float64 [rungs, segments]."""
    out = np.zeros((cost.shape[0] + 1, cost.shape[1] + 1))
    out[1:, :-1] = np.cumsum(np.cumsum(cost[:, ::-1], axis=1)[:, ::-1], axis=0)
    return out
