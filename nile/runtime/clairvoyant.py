"""The least that queues can hold at each instant, by trying every order: the judge of schedulers, for small plans."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nile.runtime.charts import Step
from nile.runtime.scheduling import Arrival, Paths

__all__ = ["least_sizes"]


def least_sizes(paths: Paths, arrivals: Sequence[Arrival], until: int) -> list[float]:
    """Of each instant from 0 to `until` the least that any schedule, made for this instant alone, holds then.

    Idle time is allowed.  Cost: the product of all batches' units of work, for each instant.
    """
    works = [_sizes_of(paths[each.path]) for each in arrivals]
    shape = tuple(work.shape[0] for work in works)
    held = np.full(shape, 0.0)
    reached = np.zeros(shape, bool)
    reached[(0,) * len(shape)] = True
    out = []
    for now in range(until + 1):
        held[:] = 0.0
        for axis, (work, each) in enumerate(zip(works, arrivals, strict=True)):
            if each.at <= now:
                held += work.reshape([-1 if at == axis else 1 for at in range(len(shape))])
        out.append(float(held[reached].min()))
        fresh = reached.copy()
        for axis, each in enumerate(arrivals):
            if each.at <= now:
                later = [slice(None)] * len(shape)
                before = list(later)
                later[axis], before[axis] = slice(1, None), slice(None, -1)
                fresh[tuple(later)] |= reached[tuple(before)]
        reached = fresh
    return out


def _sizes_of(steps: Sequence[Step]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """What a batch takes after 0, 1, ... units of work."""
    sizes = [1.0]
    size = 1.0
    for number, step in enumerate(steps):
        sizes += [size] * int(step.cost)
        size = 0.0 if number == len(steps) - 1 else size * step.selectivity
        sizes[-1] = size
    return np.array(sizes)
