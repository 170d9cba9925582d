"""A sample that is drawn before anything of a tuple is looked at, so that what is not drawn costs next to nothing.

Design.  Ordinals are drawn with replacement by the hash of the number of the draw, and each counts once: however many
different ones that gives, each set of so many was equally likely, and more draws with the same seed give a superset.
The range they are drawn from falls into equal strata afterwards; given how many fell into each, every stratum is a
simple random sample.  Source: Cochran, Sampling Techniques, 1977, sections 2.1 and 5A.9.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.operators.aggregate.input import Drawn, seed_word
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.summaries import sample_kernels as kernels
else:
    kernels = lazy("nile.summaries.sample_kernels")

__all__ = ["MOST", "drawn_of", "strata_of"]

Array = np.ndarray[Any, Any]
MOST = 0.6
"""The largest share that is drawn: of more, most draws would find what is there already."""
_STRATA = 16


def drawn_of(size: int, wanted: float, seed: int) -> Array:
    """About `wanted` of the ordinals [0, size), MOST of them at the most: int64 [m], ascending.

    O(wanted + size / 8) where few are wanted; 3 ns a draw, half a ns an ordinal.
    """
    share = min(MOST, wanted / size)
    draws = max(1, math.ceil(-size * math.log1p(-share)))
    found = np.zeros(size, bool)
    kernels.mark_drawn(draws, seed_word(seed), found)
    return np.flatnonzero(found)


def strata_of(drawn: Drawn) -> tuple[Array, Array, Array]:
    """(tuples of each stratum, how many of it were drawn, the stratum of each that satisfies): int64 [strata], [n]."""
    assert drawn.at is not None
    cuts = np.unique(np.linspace(0, drawn.size, _STRATA + 1).astype(np.int64))
    sizes = np.diff(cuts)
    ends = np.searchsorted(drawn.at, cuts)
    found = ends if drawn.hits is None else np.searchsorted(drawn.hits, ends)
    return sizes, np.diff(ends), np.repeat(np.arange(sizes.shape[0]), np.diff(found))
