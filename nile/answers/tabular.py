"""What every answer of a join offers as a table: to Arrow, pandas, Polars, and whatever reads Arrow streams."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.base.machine import memory_bytes
from nile.operators.common.plan import JoinPlan
from nile.operators.inputs.joining import Loaded
from summaries.errors import MemoryRefused
from summaries.heavy import pa, pl

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Members", "Tabular", "cheaper_as_ranges", "is_large", "refuse_beyond_memory"]

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


class Tabular(ABC):
    """Record batches that are found one after another, of one schema."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of `batches`."""

    @abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """Arrow record batches, as they are found."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """All outputs."""

    def to_pandas(self) -> pd.DataFrame:
        """All outputs as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """All outputs as a Polars DataFrame (Polars must be installed)."""
        return pl.from_arrow(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow stream interface: DuckDB, Polars, pandas and others read an answer as it is found."""
        reader = pa.RecordBatchReader.from_batches(self.schema, self.batches())
        return reader.__arrow_c_stream__(requested_schema)


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
