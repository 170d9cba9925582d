"""What inserting a tuple and finding an output take on this machine: t_ins and t_hit in nanoseconds.

Kernels insert and probe in one loop, and looking at a clock inside of it would cost more than either.  So the
same work is done twice: as it is, and with nothing to find.  t_ins: each stream is fed by itself, the other one
empty, with credit for everything; every tuple is taken in, summarised and indexed, and its probe ends at once.
t_hit: what the run itself took, less t_ins for each tuple that it took in, over its outputs; so refusing tuples
and work that found nothing count as hits, as they do in equation 1.  Two ways in which this is rough: a stream
alone has the caches to itself, which makes t_ins a little too small, and the probe that ends at once (or, for a
guide, estimates read from an empty grid) is in t_ins, where the cost clock counts it as a hit.
Times are CPU times of this thread, the least of a few passes: what else runs on a machine only ever adds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from nile.operators.common.figures import JoinFigures
from nile.operators.common.plan import JoinPlan
from nile.operators.drive.metered import MeteredRun
from nile.operators.join.join import JoinInput, PromisingJoin
from nile.preferences.clock import Pace
from nile.summaries.hashing import Encoded

__all__ = ["WallFigures", "insert_time", "run_time", "wall_figures"]

_PASSES = 3
_LONG = 50_000_000
"""ns.  A pass that takes longer is not repeated: its clock error is small beside it."""

_PLENTY = 1e6
"""Credit a tuple, units of the cost table: more than taking any tuple in costs."""

_BATCH = 65_536


@dataclass(frozen=True, slots=True)
class WallFigures:
    """t_ins: CPU ns per tuple taken in; t_hit: CPU ns per output; None where there was none, or no time was left.

    cpu: CPU ns per arrival, all in all.
    """

    t_ins: float | None
    t_hit: float | None
    cpu: float | None


def insert_time(plan: JoinPlan, data: JoinInput, *, cpu: Callable[[], int] = time.thread_time_ns) -> float | None:
    """CPU ns to take one tuple in under this plan, by feeding each stream alone; None when nothing came in."""
    if not plan.is_exact:
        plan = replace(
            plan, pace=Pace("data")
        )  # an admission threshold that waits for the first grants would refuse tuples
    total = admitted = 0
    for side in (0, 1):
        alone = _alone(data, side)
        if alone.order.shape[0]:
            taken, figures = _least(lambda alone=alone: _pass(plan, alone, cpu, plenty=True))  # type: ignore[misc]
            total += taken
            admitted += figures.admitted
    return total / admitted if admitted else None


def run_time(plan: JoinPlan, data: JoinInput, *, cpu: Callable[[], int] = time.thread_time_ns) -> int:
    """CPU ns of a whole run of this plan, whose budget is a fraction or outputs."""
    return _least(lambda: _pass(plan, data, cpu, plenty=False))[0]


def wall_figures(figures: JoinFigures, t_ins: float | None, taken: float) -> WallFigures:
    """What a run that took `taken` CPU ns took a tuple and a hit."""
    t_hit = None
    if t_ins is not None and figures.outputs:
        spare = taken - t_ins * figures.admitted
        t_hit = spare / figures.outputs if spare > 0 else None
    return WallFigures(t_ins, t_hit, taken / figures.arrivals if figures.arrivals else None)


def _alone(data: JoinInput, side: int) -> JoinInput:
    """The input with one stream emptied."""
    mine = data.order == side
    none = Encoded(codes=np.zeros(0, np.int32), hashes=np.zeros(0, np.uint64))
    nothing = np.zeros(0, np.int64)
    kept = replace(data, order=data.order[mine], costs=data.costs[mine])
    if side == 0:
        return replace(kept, right_ts=nothing, right=none)
    return replace(kept, left_ts=nothing, left=none)


def _pass(plan: JoinPlan, data: JoinInput, cpu: Callable[[], int], *, plenty: bool) -> tuple[int, JoinFigures]:
    join = PromisingJoin(plan, data)
    arrivals = data.order.shape[0]
    metered = plan.budget.unit != "fraction" and not plenty
    began = cpu()
    if metered:
        for _ in MeteredRun(join, cpu=cpu).run():
            pass
        return cpu() - began, join.figures
    for begin in range(0, arrivals, _BATCH):
        end = min(arrivals, begin + _BATCH)
        for _ in join.advance(end, credit=_PLENTY * (end - begin) if plenty else None):
            pass
    return cpu() - began, join.figures


def _least(once: Callable[[], tuple[int, JoinFigures]]) -> tuple[int, JoinFigures]:
    best = once()
    for _ in range(_PASSES - 1):
        if best[0] > _LONG:
            break
        again = once()
        best = min(best, again, key=lambda one: one[0])
    return best
