"""How standing queries come to run on one plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nile.execution.live.shared.likeness import alike

if TYPE_CHECKING:
    from nile.execution.live.running import Running

__all__ = ["run_as_one"]


def run_as_one(mine: Running, theirs: Running) -> bool:
    """Have all who read a plan read another one from here; whether both go on alike.

    They do if they are equal but for what they have counted, and have taken in the same.
    Cost: O(1) where they have come to different instants, else O(state).
    """
    if mine is theirs:
        return True
    mine.settle()
    theirs.settle()
    level = all(each._turn == plan.turn for plan in (mine, theirs) for each in plan.readers)
    if not level or not alike(mine.pipeline, theirs.pipeline):
        return False
    for each in list(mine.readers):
        each.unindexed()
        state = each._core()
        pairs = zip(each._counted(state), each._counted(theirs.pipeline.capture()), strict=True)
        each._more = [here[name] - there[same] for (here, name), (there, same) in pairs], state["origin"]
        each._plan, each._turn = theirs, theirs.turn
        theirs.readers.append(each)
        each.regroup()
    mine.readers.clear()
    mine.end()
    return True
