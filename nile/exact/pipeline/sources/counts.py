"""What operators count, in their captured states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nile.exact.state.held import State

__all__ = ["counts_of"]

_COUNTS = ("tuples", "changes", "come", "gone", "pairs", "negative", "completed", "taken", "newest")
"""What a state counts since the query was asked: what follows does not depend on it."""


def counts_of(state: State) -> Iterator[tuple[Any, str]]:
    """(where, its name) of everything in a state that counts what has been, always in the same order."""
    for name, value in sorted(state.items()):
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
