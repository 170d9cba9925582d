"""Whether two running plans go on alike, whatever they have counted."""

from __future__ import annotations

from nile.exact.pipeline.pipeline import Pipeline
from nile.exact.pipeline.sources.counts import counts_of
from nile.exact.state.held import State
from nile.execution.envelopes import flat

__all__ = ["alike", "same"]


def alike(mine: Pipeline, other: Pipeline) -> bool:
    """Whether two pipelines of one plan go on alike whatever comes: they differ in what they have counted at most.

    Cost: O(1) where they have come to different instants, else O(state).
    """
    if mine.reached != other.reached:
        return False
    states = [mine.capture(), other.capture()]
    for state in states:
        state["origin"] = state["origin"] is None
    return same(*states)


def same(mine: State, other: State) -> bool:
    """Whether two states, whose counts are lost, are equal but for these."""
    for state in (mine, other):
        for where, name in counts_of(state):
            where[name] = 0
    (params, arrays), (others, theirs) = flat(mine), flat(other)
    return (
        params == others
        and arrays.keys() == theirs.keys()
        and all(
            array.dtype == theirs[name].dtype
            and array.shape == theirs[name].shape
            and array.tobytes() == theirs[name].tobytes()
            for name, array in arrays.items()
        )
    )
