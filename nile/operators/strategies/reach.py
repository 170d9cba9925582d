"""Under a fade factor: how far back partners are looked for, and what the pairs found there are worth."""

from __future__ import annotations

from dataclasses import dataclass

from nile.operators.common.plan import JoinPlan

__all__ = ["Reach", "reaches"]


@dataclass(frozen=True, slots=True)
class Reach:
    """window: ns, None for all time; worth: what a pair within it counts for on average, 1 in the first granularity;
    why: in words, nothing for the window of the plan."""

    window: int | None
    worth: float
    why: str = ""


def reaches(plan: JoinPlan, span: int) -> list[Reach]:
    """The plan's window, and under a fade factor besides each of its granularities with all that are younger.

    span: ns that all tuples lie within.  Ages are taken to be even within the window.
    Source: promising tuples, section 4.1.1: priority = fade ** (granularity - 1) * expected matches.
    """
    if plan.fade.factor == 1.0 or plan.preference != "desc":
        return [Reach(plan.window, 1.0)]
    far = max(1, span if plan.window is None else plan.window)
    powers = plan.fade.powers(plan.spec.depth)
    found, border, worth = [], 0, 0.0
    for g in range(plan.spec.depth):
        begin = border
        border = far if g + 1 == plan.spec.depth else min(far, border + plan.spec.span(g + 1))
        worth += float(powers[g]) * (border - begin)
        if border == far:
            break
        found.append(Reach(border, worth / border, f"of the youngest {border / far:.0%} of the window "))
    return [Reach(plan.window, worth / far), *found]
