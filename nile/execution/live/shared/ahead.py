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
    in common, or one above it, one before the others, which find what that has made.  Whatever samples (a subclass)
    looks at a batch itself.
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
    works = {id(plan): (plan.ahead, [plan.arrival_formed(name, batch, plans[id(plan)][1])]) for plan in ready}
    for number, together in enumerate(_in_turn(ready)):
        if number and together:
            worked_ahead([works[id(plan)] for plan in together], threads)
        for ahead, steps in [] if number else [works[id(plan)] for plan in together]:
            ahead.work(steps)
    return ready


def _in_turn(ready: Iterable[Running]) -> list[list[Running]]:
    """Plans that may be worked on side by side, after those before them: all that they have in common is worked on.

    The first ones are those that tuples, which several hold together, come to first.
    """
    turns: list[list[Running]] = [[], []]
    begun: dict[int, int] = {}
    for plan in ready:
        read: list[object] = [] if plan.common is None else [plan.common.family, plan.common, *plan.nested]
        known = [begun[id(each)] for each in read if id(each) in begun]
        turn = max(known) + 1 if known else 0 if read else 1
        begun |= {id(each): turn for each in read if id(each) not in begun}
        while len(turns) <= turn:
            turns.append([])
        turns[turn].append(plan)
    return turns
