"""What every query gives back: rows as Arrow, and what they are worth."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nile.answers.in_turn import in_turn
from nile.answers.tabular import held_together
from nile.preferences.budget import BudgetReport
from nile.report.accuracy.reporting import Step, Wanted
from nile.streams.accounting import Accounting
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa, pl

if TYPE_CHECKING:
    import pandas as pd

    from nile.report.accuracy.report import AccuracyReport

__all__ = ["Answer"]


class Answer(ABC):
    """Record batches of one schema that are found one after another, and how good, how complete and how dear they are.

    Nothing runs before something is asked for; what tells of the whole runs to the end.
    """

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of `batches`."""

    @abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """Arrow record batches, as they are found."""

    def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        """As `batches`, for coroutines: `async for batch in answer`.  The event loop goes on while one is found."""
        return in_turn(self.batches())

    def to_arrow(self) -> pa.Table:
        """All rows.  Raises MemoryRefused for more than half of the machine's memory."""
        return pa.Table.from_batches(held_together(self.batches()), schema=self.schema)

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """All rows as a Polars DataFrame (Polars must be installed)."""
        return pl.from_arrow(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow stream interface: DuckDB, Polars, pandas and others read an answer as it is found."""
        reader = pa.RecordBatchReader.from_batches(self.schema, self.batches())
        return reader.__arrow_c_stream__(requested_schema)

    @property
    @abstractmethod
    def plan(self) -> Any:
        """How it runs."""

    @property
    @abstractmethod
    def budget(self) -> BudgetReport:
        """Asked and spent."""

    @property
    @abstractmethod
    def accounts(self) -> tuple[Accounting, ...]:
        """Of each stream, in the order of the question: in = applied + late + shed + rejected."""

    @property
    def coverage(self) -> float:
        """The share of the window, in time, that was still held."""
        return 1.0

    @property
    def overall(self) -> Estimate | None:
        """How many rows the exact answer has, as far as this one tells; of one number alone, that number.

        None: it does not tell.
        """
        return None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What should be known before it is used."""
        return ()

    @property
    def memory_bytes(self) -> int:
        """Bytes held beside the rows."""
        return 0

    @property
    def figures(self) -> Any:
        """Counts and costs of the run, as a dataclass; None where none are kept."""
        return None

    def report(
        self,
        path: str | Path | None = None,
        *,
        budgets: Iterable[float] | None = None,
        seeds: int | None = None,
        against: Sequence[str] | str | None = None,
        engine: str | None = None,
        on_progress: Step | None = None,
    ) -> AccuracyReport:
        """How good this answer is, against the exact one: recall by budget, histograms, outliers, intervals, advice.

        The query is run again over what it has read: for each of `budgets` (fractions of the exact work; None: 1 % to
        100 %), for `seeds` seeds (5), and by each opponent that `against` names beside "exact" (of joins hash-drop).
        engine: what computes the exact pairs of a join of two streams, "local" (in this process) or "spark".  path:
        where to write it (`AccuracyReport.save`).  on_progress: called after each run.
        Raises ConfigError for an answer that is exact, BudgetError, MemoryRefused, JavaMissing, SparkFailed.
        """
        told = self.measured(Wanted(budgets, seeds, against, engine, on_progress))
        if path is not None:
            told.save(path)
        return told

    @abstractmethod
    def measured(self, wanted: Wanted) -> AccuracyReport:
        """The body of `report`."""
