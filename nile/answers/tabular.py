"""What joins of two streams and of several share: the tuples behind outputs, memory limits, and a warning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.base.machine import memory_bytes
from nile.operators.common.plan import JoinPlan
from nile.operators.inputs.joining import Loaded
from nile.summaries.errors import MemoryRefused

__all__ = ["Members", "cheaper_as_ranges", "is_large", "refuse_beyond_memory"]

Array = np.ndarray[Any, Any]
_HALF_OF_MACHINE = 2
_PIECES = 32


@dataclass(frozen=True, slots=True)
class Members:
    """The tuples that outputs are made of, range records expanded.

    streams: the n streams; ordinal: int64 [o] for each, which tuple of it; key: int64 [o], the code of the key;
    weight: float64 [o], 1 / inclusion probability.
    """

    streams: tuple[Loaded, ...]
    ordinal: tuple[Array, ...]
    key: Array
    weight: Array


def is_large(needed: int) -> bool:
    """Whether so many bytes are a piece of this machine's memory that is worth counting for what is still to come."""
    return needed * _PIECES > memory_bytes()


def refuse_beyond_memory(needed: int, pairs: int) -> None:
    held = memory_bytes()
    if needed * _HALF_OF_MACHINE > held:
        raise MemoryRefused(
            f"answer: {pairs:,} pairs need about {needed / 2**30:.1f} GiB, more than half of this machine's "
            f"{held / 2**30:.1f} GiB; iterate batches(), ask for output='ranges', a window, or a smaller budget"
        )


def cheaper_as_ranges(names: Sequence[str], plan: JoinPlan, granted: float, exact: float) -> tuple[str, ...]:
    """That the whole answer of a join as ranges would cost less than its budget grants, where it would.

    granted, exact: units of the plan's cost table.
    """
    if granted < exact:
        return ()
    streams = ", ".join(f"'{name}'" for name in names[:-1]) + f" and '{names[-1]}'"
    return (
        f"join of {streams}: the budget grants {granted:,.0f} units ({plan.budget}); the whole answer as ranges costs "
        f"{exact:,.0f}; run it without a budget, returning('ranges'), and expand what is needed",
    )
