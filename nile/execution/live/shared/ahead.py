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

    Of plans that read the same tuples one is worked on before all others, and takes these in; of those that have a part
    in common one before the others, which find what that has made.  Whatever samples (a subclass) looks at a batch
    itself.
    """
    plans: dict[int, tuple[Running, int | None]] = {}
    for one in units:
        if type(one) is ExactSubscription and id(one.plan) not in plans and not one.paused and not one.closed:
            plans[id(one.plan)] = one.plan, one.reached
    if len(plans) < 2:
        return []
    ready = [plan for plan, _ in plans.values() if plan.may_run_ahead]
    if len(ready) < 2:
        return []
    first: list[Running] = []
    second: list[Running] = []
    third: list[Running] = []
    begun: dict[int, list[Running]] = {}
    for plan in ready:
        common = plan.common
        if common is None:
            second.append(plan)
        elif id(common.family) not in begun:
            begun[id(common.family)] = begun[id(common)] = second
            first.append(plan)
        elif id(common) not in begun:
            begun[id(common)] = third
            second.append(plan)
        else:
            begun[id(common)].append(plan)
    works = {id(plan): (plan.ahead, [plan.arrival_formed(name, batch, plans[id(plan)][1])]) for plan in ready}
    for plan in first:
        ahead, steps = works[id(plan)]
        ahead.work(steps)
    for together in (second, third):
        if together:
            worked_ahead([works[id(plan)] for plan in together], threads)
    return ready
