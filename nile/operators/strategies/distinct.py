"""How many distinct keys there are, by how often those of a sample of tuples were met."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["distinct_of", "groups_told", "paired_of"]

Array = np.ndarray[Any, Any]
_MOST = 64
_TAIL = 6
_OFTEN = 4
"""Times that a key was met from which on it is known by itself."""


def distinct_of(times: Array, met: float, tuples: float) -> float:
    """About how many distinct keys `tuples` tuples have, of which `met` were met in a sample.

    times: int64 [keys], how often each of some keys was met, taken by a hash of the key: the result is their number,
    met or not, and has to be scaled by what share of the keys hashes so.

    Two classic estimates bound it.  Keys that are all as frequent leave unmet what Chao's coverage of singletons and
    doubletons says, the least there can be; keys whose frequencies go on falling as they do among those met, what
    Shlosser's says, which is far too many where they do not.  Between them lies, by its logarithm, what the keys met
    three to six times say: under Poisson's law these are fewer than under a power law.
    Sources: Chao and Lin, "Nonparametric Lower Bounds for Species Richness and Shared Species Richness under Sampling
    without Replacement", Biometrics 68 (2012); Shlosser, "On Estimation of the Size of the Dictionary of a Long Text on
    the Basis of a Sample", Engineering Cybernetics 19 (1981); compared by Haas, Naughton, Seshadri, Stokes,
    "Sampling-Based Estimation of the Number of Distinct Values of an Attribute", VLDB 1995.  The blend is our own.
    """
    seen = float(times.shape[0])
    share = met / tuples if tuples > 0.0 else 1.0
    if share >= 1.0 or not seen:
        return seen
    often = np.bincount(np.minimum(times, _MOST), minlength=_MOST + 1)[1:].astype(np.float64)
    once, twice = float(often[0]), max(0.5, float(often[1]))
    if not once:
        return seen
    even = seen + once * once / (2.0 * twice / (1.0 - share) + once * share / (1.0 - share))
    each = np.arange(1.0, _MOST + 1)
    missed = (1.0 - share) ** each
    falling = seen + once * float((missed * often).sum() / (each * share * missed / (1.0 - share) * often).sum())
    blend = _falling(often, once, twice)
    return float(even ** (1.0 - blend) * max(even, falling) ** blend)


def groups_told(times: Array, share: float) -> str:
    """Which groups a sample of so large a share of the tuples hides, in words; "" where it seems to have them all.

    times: int64 [groups], tuples of each in the sample.
    """
    times = times[times > 0]
    met = float(times.sum())
    if share >= 1.0 or not met:
        return ""
    there = round(distinct_of(times, met, met / share))
    if there <= times.shape[0]:
        return ""
    return f"the sample has {times.shape[0]:,} of about {there:,} groups: of the others it has no tuple"


def paired_of(own: Array, others: Array, every: int) -> float:
    """About which share of a stream's tuples have a key that the other stream has, too.

    own, others: int64 [keys], how often each of some keys was met in samples of either stream; every: of the other one,
    one tuple in so many is in the sample.  Keys met often are known by themselves; of the rest, whose tuples are taken
    to come as in a Poisson process, as many have a partner as a sample so thin would show by those it shows.
    """
    often, met = own + others >= _OFTEN, others > 0
    known, shown = float(own[often & met].sum()), float(own[met].sum())
    light, total = float(own.sum()) - float(own[often].sum()), float(own.sum())
    share = (shown - known) / light if light else 0.0
    return (known + light * (1.0 - (1.0 - share) ** every)) / total if total else 0.0


def _falling(often: Array, once: float, twice: float) -> float:
    """Where from 0, as under Poisson's law, to 1, as under a power law, the keys met three to six times lie."""
    each = np.arange(3.0, _TAIL + 1)
    alike = once * float(((2.0 * twice / once) ** (each - 1.0) / np.cumprod(np.arange(1.0, _TAIL + 1))[2:]).sum())
    power = once * float((each ** -np.log2(max(1.01, once / twice))).sum())
    if power <= 1.02 * alike:
        return 0.0
    told = max(0.5, float(often[2:_TAIL].sum()))
    return float(np.clip(np.log(told / alike) / np.log(power / alike), 0.0, 1.0))
