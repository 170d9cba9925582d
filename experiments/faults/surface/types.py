"""The fault row of types: one attempt is one type of Arrow in one clause."""

from __future__ import annotations

from nile.experiments.faults.fault import Fault, Wrong
from nile.experiments.faults.surface.arrow_types import arrow_types
from nile.experiments.faults.surface.clauses import CLAUSES, outcome
from nile.summaries.heavy import pa

__all__ = ["FAULT"]


def attempt(seed: int) -> None:
    """Works and is right, or is refused by name; nothing foreign comes out."""
    types, clauses = arrow_types(), tuple(CLAUSES)
    outcome(types[seed // len(clauses) % len(types)], clauses[seed % len(clauses)])


def control(seed: int) -> None:
    """What an engine without conversions at the source gives: Arrow's own exceptions."""
    views = pa.array([["a"], ["b"]], pa.list_(pa.string_view()))
    halves = pa.record_batch([pa.array([1.5, 0.5]).cast(pa.float16())], names=["v"])
    try:
        views.take(pa.array([seed % 2])) if seed % 2 else pa.compute.sort_indices(
            halves, sort_keys=[("v", "ascending")]
        )
    except pa.ArrowException as error:
        raise Wrong(f"a foreign exception: {error}") from None


FAULT = Fault(
    "types", "every type of Arrow in every clause", "right, or refused by name", attempt, control,
    full=1_518, small=60,
)  # fmt: skip
