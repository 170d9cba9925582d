"""Plans worked on by threads before what comes arrives at their readers."""

from __future__ import annotations

from collections.abc import Iterable

from nile.execution.live.exact_subscription import ExactSubscription
from nile.execution.live.running import Running
from nile.runtime.on_threads import worked_ahead
from nile.streams.manager import TupleBatch

__all__ = ["work_ahead"]


def work_ahead(units: Iterable[object], name: str, batch: TupleBatch, threads: int | None) -> list[Running]:
    """Let threads work out what a batch leads to in plans, before it arrives at their readers: these plans.

    Of plans that have a part in common one is worked on before all others, and with it the part.  Whatever samples (a
    subclass) looks at a batch itself.
    """
    plans: dict[int, tuple[Running, int | None]] = {}
    for one in units:
        if type(one) is ExactSubscription and id(one.plan) not in plans and not one.paused and not one.closed:
            plans[id(one.plan)] = one.plan, one.reached
    if len(plans) < 2:
        return []
    ready = [(plan, at) for plan, at in plans.values() if plan.may_run_ahead]
    if len(ready) < 2:
        return []
    work = {id(plan): (plan.ahead, [plan.arrival_formed(name, batch, at)]) for plan, at in ready}
    for plan in {id(plan.common): plan for plan, _ in ready if plan.common is not None}.values():
        ahead, steps = work.pop(id(plan))
        ahead.work(steps)
    if work:
        worked_ahead(list(work.values()), threads)
    return [plan for plan, _ in ready]
