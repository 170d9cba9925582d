"""Parts of plans above what they read in common (`Common`), at work once: a GROUP BY or DISTINCT over one join.

Plans that read one part, and are equal above it too, read the larger part instead, which reads the smaller one for all
of them; and so on upwards, so each part runs once, whoever has it.  Source: STREAM (CIDR 2003), section 3.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nile.exact.pipeline.build import build
from nile.exact.pipeline.schedule import Clock
from nile.exact.pipeline.sources.part import Part
from nile.exact.state.held import State
from nile.execution.live.shared.likeness import same
from nile.execution.live.shared.subplan import Subplan

if TYPE_CHECKING:
    from nile.execution.live.running import Running
    from nile.execution.live.shared.common import Common

__all__ = ["Nested", "nest", "next_level", "read_by"]


@dataclass(eq=False)
class Nested:
    """A part at work once above another.  like: one of those it stands for; below: what it reads; plans: as of it."""

    like: Subplan
    part: Part
    below: Common | Nested
    plans: list[Running]

    @property
    def memory(self) -> int:
        """Bytes of its state, without what is below."""
        return int(self.part.root.memory) - int(self.below.part.root.memory)

    def join(self, plan: Running) -> None:
        """One plan more that reads it."""
        self.plans.append(plan)

    def leave(self, plan: Running) -> None:
        """One less; without any the part ends."""
        self.plans.remove(plan)
        if not self.plans:
            self.part.end()


def read_by(plan: Running) -> Common | Nested | None:
    """The largest part that a plan reads; None: it has all for itself."""
    return plan.nested[-1] if plan.nested else plan.common


def next_level(mine: Running, theirs: Running) -> int | None:
    """Where the lowest of the parts is that two plans, which read one part, have twice; None: nowhere."""
    if mine.common is None or mine.common is not theirs.common:
        return None
    level = 1
    while level <= min(len(mine.nested), len(theirs.nested)) and mine.nested[level - 1] is theirs.nested[level - 1]:
        level += 1
    if level >= min(len(mine.subplans), len(theirs.subplans)):
        return None
    return level if mine.subplans[level].key == theirs.subplans[level].key else None


def nest(mine: Running, theirs: Running) -> bool:
    """Have two plans, which read one part, and those that share with them, read the next larger one, too, if they have
    equal ones in equal states; whether they do.  Nothing waits, and all readers have taken all there was.

    Cost: O(state above the part that they read).
    """
    level = next_level(mine, theirs)
    if level is None or mine.pipeline.reached != theirs.pipeline.reached:
        return False
    if not same(*({"operators": _above(plan, level)} for plan in (mine, theirs))):
        return False
    had = [plan.nested[level - 1] if len(plan.nested) >= level else None for plan in (mine, theirs)]
    target = had[0] or had[1]
    prefix = tuple(mine.nested[: level - 1])
    below = prefix[-1] if prefix else mine.common
    assert below is not None
    if target is None:
        like = theirs.subplans[level]
        built = build(
            like.made,
            Clock(threads=theirs.threads),
            like.reader,
            parts={id(theirs.subplans[level - 1].made): below.part},
        )
        target = Nested(like, Part(*built), below, [])
        target.part.restore(theirs.pipeline.capture_part(like.made), theirs.stages.done)
    for plan, own in ((mine, had[0]), (theirs, had[1])):
        if own is not target:
            for each in [plan] if own is None else list(own.plans):
                each.run_on(mine.common, (*prefix, target))
    return True


def _above(plan: Running, level: int) -> Sequence[State]:
    """The states of the operators of a part that are not of the one below it."""
    if len(plan.nested) >= level:
        one = plan.nested[level - 1]
        return [each.capture() for each in one.part.entries[len(one.below.part.entries) :]]
    own, below = (plan.subplans[at].made for at in (level, level - 1))
    return plan.pipeline.capture_part(own, above=below)
