"""A join under the wall clock: arrivals come when they are due, and the operator has a share of a core."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from nile.operators.common.contract import Operator, Out
from nile.preferences.wall import WallClock
from nile.summaries.errors import ConfigError

__all__ = ["run_live"]


def run_live(
    join: Operator[Out],
    clock: WallClock,
    *,
    speed: float = 1.0,
    now: Callable[[], int] = time.monotonic_ns,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Out]:
    """Play the join's input back at `speed` times its own pace and yield outputs as they are found.

    Each quantum takes in what has become due and spends the clock's credit, spread evenly over the arrivals;
    a quantum without arrivals goes on with what waits.  Ends when the last arrival has had its quantum.
    The plan must say how arrivals wait, so its pace must be a replay.  now, sleep: the wall clock, ns and s.
    Raises ConfigError for a plan without a replay, a join that has begun, or a speed of 0 or less.
    """
    if not join.plan.pace.is_replay or join.fed or not speed > 0.0:
        raise ConfigError(
            "live join: needed a plan with replay 'data' or 'exponential', an input from its start and a speed above "
            f"0; got replay {join.plan.pace.replay!r}, {join.fed} arrivals done, speed {speed!r}"
        )
    times = join.times()
    quantum = round(1e9 * clock.budget.quantum)
    began = last = now()
    done = 0
    while done < times.shape[0]:
        here = now()
        credit = clock.credit(here - last)
        last = here
        due = int(times[0]) + int((here - began) * speed)
        end = max(done, int(np.searchsorted(times, due, side="right")))
        before = join.spent
        found = list(join.advance(end, credit=credit))
        clock.settle(join.spent - before, join.credit)
        done = end
        yield from found
        clock.resume()
        pause = here + quantum - now()
        if pause > 0:
            sleep(pause / 1e9)
