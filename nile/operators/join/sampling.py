"""What a sample of a join keeps between kernel calls: the plan, and the place in it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nile.summaries.kernels import inlined

Array = np.ndarray[Any, Any]

# `at`: the sampler's own place.
TICKS, LAST, CHANGED, DRAWN = 0, 1, 2, 3
AT_FIELDS = 4
"""TICKS: passed so far; LAST: the pair of the entry in progress that was emitted last, -1: none; CHANGED: how often the
coins of tuples have moved (ranges); DRAWN: pairs drawn so far."""
# `lines`, of a stratum: where the next tick lies, ahead of what has been passed, and within its unit.
# `block`, of a stream's stratum: tuples of the block in progress, below 0 where one stays out rather than comes in;
# which; how many have passed; the segment it began in.
LENGTH, PLACE, MET, BEGAN = 0, 1, 2, 3
BLOCK_FIELDS = 4
# `real`: two of `lines`, where there is one alone; what is planned to be spent; the
# factor of tuples' coins under ranges; draws expected of what has been passed; how far apart draws of an entry lie;
# what asking a lent grid costs whether the other stream has a tuple's key at all, 0: it is not asked.
AHEAD, WITHIN, TOTAL, STEP, EXPECTED, APART, ASKING = 0, 1, 2, 3, 4, 5, 6
ALIKE = TOTAL  # of live streams: what all parts' tuples are granted on average over what those here are, less 1
DEALT = STEP  # of live streams, which have no ranges: what grants were multiplied by, of which rates know nothing
REAL_FIELDS = 7
# `lines` under ranges, of a stream: what is left of the unit in progress, and whether its tuple is still to come (1).
ROOM, DUE = 0, 1
# `books`, ranges: what tuples met since coins began anew were expected to cost, and what those that came in did cost;
# records that a tuple is expected to make; the share of tuples whose key the other stream may have; the arrival with
# which coins begin anew; records that tuples made lately; all by when the last one came in.
FORESEEN, PAID, RECORDS, PARTNERED, ANEW, LATELY, MADE = 0, 1, 2, 3, 4, 5, 6
BOOK_FIELDS = 7
# `books`, live: matches of all arrivals; what tuples, and pairs, add to the variance of totals; arrivals with a key;
# what tuples stand for by their coins, on average; and of keys, by their hash, the root of what each adds.
MATCHES, BY_TUPLE, BY_PAIR, SEEN, STANDS, BY_KEY = 0, 1, 2, 3, 4, 5
KEYS = 1024
# `thin`, of two phases: what pairs that were passed were expected to cost, less what they did; reaches in a ns; of the
# entry in progress, the share of its pairs that is handed out, where the cells of its group begin, and kinds of age.
OWED, PER_NS, SHARE, CELLS, AGES = 0, 1, 2, 3, 4
THIN_FIELDS = 5
FACTORS = 1024
"""Parts of the input, of each of which the factor that moved its rates is kept."""
CHANGES = 256
"""The most often that the coins of tuples may move under ranges."""


class Sampling(NamedTuple):
    """The plan and the place of a sampler: s segments of the input, k strata."""

    level: Array  # float64 [s, k]
    left: Array  # float64 [s, k], FIRM where tuples come in as long as a factor is not below 1 / FIRM
    right: Array  # float64 [s, k]
    rate: Array  # float64 [s, k]
    slot: Array  # uint8 [s, 4096]: the stratum of each part of the key space
    ends: Array  # int64 [s]: the arrival with which each segment ends
    to_come: Array  # float64 [b + 1]: what is planned to be spent from each of b parts of the input on
    held: Array  # float64 [b + 1]: the part of it for tuples that come in whatever is left; ranges: 0
    price: Array  # float64 [s]: of looking at a sampled tuple
    every: Array  # int64 [s]: of so many arrivals one is sampled
    left_thinned: Array  # float64 [left tuples]: the probability of each that came in by its own coin
    right_thinned: Array  # float64 [right tuples]
    changes: Array  # int64 [CHANGES, 2], ranges: of each time that coins moved, the next ordinals of left and right
    lines: Array  # float64 [k, 2]; of one stratum alone the first two of `real`; ranges: [2, 2], of either stream
    block: Array  # int64 [2, k, 4], pairs
    books: Array  # float64 [7], ranges; [BY_KEY + KEYS], live
    factors: Array  # float64 [parts], pairs: the last factor of rates in each part of the input, 0: none met it
    luck: Array  # float64 [1]: the place, in [0, 1), of the next entry's first draw
    share: Array  # float64 [s, k], two phases; [0, 0] where all pairs that are drawn are handed out
    of: Array  # int64 [k, 2], two phases: where the cells of a stratum's group begin, and its kinds of age
    cells: Array  # float64 [kinds of all groups], two phases: how far a cell is towards its next pair
    thin: Array  # float64 [5], two phases
    at: Array  # int64 [4]
    real: Array  # float64 [7]


@inlined
def to_come(arrival: int, arrivals: int, planned: Array) -> float:
    """What is planned to be spent from an arrival on: `to_come`, or `held`."""
    parts = planned.shape[0] - 1
    at = np.float64(arrival) * parts / np.float64(arrivals)
    part_of = min(np.int64(at), parts - 1)
    return planned[part_of] + (at - part_of) * (planned[part_of + 1] - planned[part_of])  # type: ignore[no-any-return]
