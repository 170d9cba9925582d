"""How a sample of a join is best drawn from keys of all sizes: which keys, which of their tuples, which of their pairs.

Three coins stand between a pair and the sample.  A key is in when its hash lies below `level` (light keys: all of a
key's pairs, or none); a tuple of a key that is in comes in with probability `left` or `right`, by a coin of its own
(heavy keys: thinned tuple by tuple, so that none is missed whole); a pair of tuples that came in is drawn with
probability `rate`.  A pair then stands for 1 / (level * left * right * rate) pairs.

Sources: two-level sampling, Chen and Yi, "Two-Level Sampling for Join Size Estimation", SIGMOD 2017; stratified
universe-Bernoulli sampling, Huang, Yoon, Pettie, Mozafari, "Joins on Samples", VLDB 13 (2019); sampling by exact
weights, Zhao, Christensen, Li, Hu, Yi, "Random Sampling over Joins Revisited", SIGMOD 2018.  They draw samples before
a query; here the rates come from one budget, in which taking tuples in and emitting pairs have prices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.preferences import strata_kernels as kernels
else:
    kernels = lazy("nile.preferences.strata_kernels")

__all__ = ["SLOTS", "Sizes", "Strata", "best_strata", "sizes_of"]

Array = np.ndarray[Any, Any]
SLOTS = 4096
"""Parts of the key space that strata are told apart by: a byte each, which stays in the nearest cache."""

FIRM = 2.0
"""See `Strata.firm`."""

_LEAST = 1e-4
_SCARCE = 0.2  # sampled tuples that a listed key is believed to have where none was seen
_NEXT_TO_NONE = 1e-3
_KNOWN = 0.85  # of the tuples and pairs, the most that listed keys are believed to have
_MISSED = 2.0  # a key of more tuples than so many sampled ones stand for would be listed
_STEPS = 24
_WHOLE = 1e-3  # so little that every rate is 1
_WHOLE_KEYS = 64.0  # a key that is missed whole counts more than its variance: sizes are believed, not known
_SPARED = 0.05  # of a budget, at least for taking in keys that are not listed, and as much for drawing their pairs
_AGES = 4.0  # pairs drawn count more than keys: a histogram over ages knows no keys
_KNOBS = np.array([_LEAST, _AGES, _WHOLE_KEYS])


class Sizes(NamedTuple):
    """Of each segment of the input, one row: s segments, k strata.  Stratum 0 holds the keys that are not listed."""

    keys: Array  # float64 [s, k]: keys of the stratum, as many as would make its pairs; 0: there is none
    left: Array  # float64 [s, k]: left tuples of one of them
    right: Array  # float64 [s, k]
    pairs: Array  # float64 [s, k]: pairs of one of them
    loads: Array  # float64 [s, k, 2]: tuples, left and right, that come for each of them


class Strata(NamedTuple):
    """The rates of each stratum in each segment, all float64 [s, k] in (0, 1].  cost: float64 [s], what a segment is
    expected to spend; taking: float64 [s], the part of it that takes tuples in.

    firm: bool [s, k, 2], the streams of a stratum whose tuples all come in, and would still were there but 1 / FIRM of
    the budget, as where they are few and their partners many; held: float64 [s], the part of `taking` for them.
    """

    level: Array
    left: Array
    right: Array
    rate: Array
    cost: Array
    taking: Array
    firm: Array
    held: Array


def best_strata(sizes: Sizes, budget: float, taking: float, emitting: float, *, blocks: bool = False) -> Strata:
    """The rates that make totals, and histograms, vary least for a budget.  O(strata) numbers, some dozen times.

    budget, taking (of a tuple), emitting (of a pair): in one unit of cost; blocks: whether tuples are thinned in blocks
    of a stratum, of each of which as many come in, rather than each by itself.

    Under these rates pairs of the sample weigh about as much, and another unit of cost buys as much anywhere.
    With y tuples of each side left of a key of N pairs whose window holds one in r pairs of its tuples, the relative
    variance is (1 + 2 / y + r / y**2) / level - 1: least for its cost at y = sqrt(r), until the level is 1.  Coins in
    blocks leave of it, at level 1, what falls by the square of y alone.  Where one side has fewer than y, these all
    come in, and of the m of the other side so many that N m / y, what is left of it, is worth their cost.
    Keys that are not listed get a part at least, for being taken in and again for being drawn.  Totals hardly
    need them where few keys have nearly all pairs, but a histogram by key has most of its error there.
    """
    keys, left, right, pairs, loads = sizes
    high = max(2.0, 1e3 * float((keys * pairs).sum()))
    room = np.empty((6, *keys.shape))
    level, of_left, of_right, rate = (np.empty(keys.shape) for _ in range(4))
    kernels.solve(
        keys, left, right, pairs, loads, budget, taking, emitting, blocks, _SPARED * budget, _STEPS, _WHOLE, high,
        _KNOBS, room, level, of_left, of_right, rate,
    )  # fmt: skip
    none, kept = keys <= 0.0, room[4]
    cost = taking * (of_left * loads[:, :, 0] + of_right * loads[:, :, 1])
    in_all = np.where(none, 0.0, keys * level * cost).sum(axis=1)
    drawn = np.where(none, 0.0, keys * emitting * pairs * level * of_left * of_right * rate).sum(axis=1)
    firm = np.stack([kept >= FIRM * left, kept >= FIRM * right], axis=2)
    held = taking * np.where(none[:, :, None] | ~firm, 0.0, (keys * level)[:, :, None] * loads).sum(axis=(1, 2))
    for part in (level, of_left, of_right, rate):
        part[none] = 1.0
    return Strata(level, of_left, of_right, rate, in_all + drawn, in_all, firm, held)


def sizes_of(pairs: Array, tuples: Array, keys: int, counts: Array, stands: Array, closeness: Array) -> Sizes:
    """What strata hold, by what a sample of tuples tells, and by how many pairs there are.

    pairs: float64 [s], of each segment; tuples: float64 [s, 2], with a key, of left and right; keys: distinct ones;
    counts: float64 [s, k - 1, 2], sampled tuples of each listed key; stands: float64 [s], tuples that a sampled one
    stands for; closeness: float64 [s], share of the pairs of a key's tuples that join.

    Keys that are not listed are taken to be as unlike as pairs say that keys are: of a left tuple the key has as many
    right ones as there are pairs, and of a pair, were sizes log-normal, more by the same ratio again.  What pairs their
    tuples cannot make at that size, listed keys have.  Where these would have more than there are, they have fewer
    tuples in the stream of which the sample saw none, whose number is but a guess.
    """
    n = np.maximum(counts, _SCARCE) * stands[:, None, None]
    n *= np.minimum(1.0, _KNOWN * tuples / np.maximum(n.sum(axis=1), 1e-9))[:, None, :]
    joined = n[:, :, 0] * n[:, :, 1] * closeness[:, None]
    small = np.minimum(1.0, _KNOWN * pairs / np.maximum(joined.sum(axis=1), 1e-9))[:, None]
    joined *= small
    guessed = counts <= _SCARCE
    n *= np.where(guessed & ~guessed[:, :, ::-1], small[:, :, None], 1.0)
    n = np.maximum(n, _NEXT_TO_NONE)
    rest = np.maximum(tuples - n.sum(axis=1), 1.0)
    left_over = np.maximum(pairs - joined.sum(axis=1), 1e-3)
    others = np.maximum(1.0, np.minimum(keys - counts.shape[1], rest.sum(axis=1)))
    mean = rest / others[:, None]
    # Of a tuple of the other stream, so many.
    met = (pairs / np.maximum(closeness, 1e-12))[:, None] / np.maximum(tuples, 1.0)[:, ::-1]
    unlike = np.maximum(1.0, met / mean)
    size = np.minimum(mean * unlike * unlike, np.maximum(mean, _MISSED * stands[:, None]))
    most = np.minimum(rest[:, 0] * size[:, 1], rest[:, 1] * size[:, 0]) * closeness
    left_over = np.minimum(left_over, np.maximum(most, 1e-3))
    joined *= (np.maximum(0.0, pairs - left_over) / np.maximum(joined.sum(axis=1), 1e-9))[:, None]
    made = np.minimum(left_over, np.maximum(size[:, 0] * size[:, 1] * closeness, left_over / others))
    like = left_over / made

    def beside(first: Array, more: Array) -> Array:
        return np.concatenate([first[:, None], more], axis=1)

    return Sizes(
        keys=beside(like, np.ones(joined.shape)),
        left=beside(np.maximum(size[:, 0], _NEXT_TO_NONE), n[:, :, 0]),
        right=beside(np.maximum(size[:, 1], _NEXT_TO_NONE), n[:, :, 1]),
        pairs=beside(made, np.maximum(joined, 1e-6)),
        loads=np.concatenate([(rest / like[:, None])[:, None, :], n], axis=1),
    )
