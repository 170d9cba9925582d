"""Whether two running plans go on alike, whatever they have counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nile.exact.pipeline.pipeline import Pipeline
from nile.exact.state.held import State
from nile.execution.envelopes import flat

__all__ = ["alike", "counts_of"]

_COUNTS = ("tuples", "changes", "come", "gone", "pairs", "negative", "completed", "taken", "newest")
"""What a state counts since the query was asked: what follows does not depend on it."""


def counts_of(state: State) -> Iterator[tuple[Any, str]]:
    """(where, its name) of everything in a state that counts what has been, always in the same order."""
    for name, value in state.items():
        if isinstance(value, dict):
            yield from counts_of(value)
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, dict):
                    yield from counts_of(each)
        elif (name in _COUNTS and isinstance(value, int)) or (
            name == "counts" and ("taken" in state or state.keys() == {"counts", "rows", "shown"})
        ):
            yield state, name


def alike(mine: Pipeline, other: Pipeline) -> bool:
    """Whether two pipelines of one plan go on alike whatever comes: they differ in what they have counted at most.

    Cost: O(1) where they have come to different instants, else O(state).
    """
    if mine.reached != other.reached:
        return False
    states = [mine.capture(), other.capture()]
    for state in states:
        for where, name in counts_of(state):
            where[name] = 0
        state["origin"] = state["origin"] is None
    (params, arrays), (others, theirs) = map(flat, states)
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
