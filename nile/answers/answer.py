"""What every query returns: rows as Arrow, and how good they are."""

from __future__ import annotations

import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.answers.in_turn import in_turn
from nile.answers.python_rows import rows as dicts
from nile.answers.python_rows import text, tuples
from nile.answers.tabular import held_together
from nile.base.room import within
from nile.base.show import first_rows, render
from nile.base.writing import place_given, write
from nile.operators.common.total_bounds import TotalBounds
from nile.preferences.budget import BudgetReport
from nile.report.accuracy.reporting import Step, Wanted
from nile.report.pages.notebook import in_a_notebook, worded
from nile.report.pages.plot import Plot, Reach, histogram
from nile.streams.accounting import Accounting
from nile.summaries.errors import ConfigError, UnknownColumn
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa, pl

if TYPE_CHECKING:
    import pandas as pd

    from nile.report.accuracy.report import AccuracyReport

__all__ = ["SHOWN", "Answer"]

SHOWN = 10
"""Rows of an answer that a notebook shows."""


_CALLED_HERE = {
    **dict.fromkeys(("df", "fetchdf", "toPandas"), "to_pandas()"),
    "pl": "to_polars()",
    **dict.fromkeys(("arrow", "fetch_arrow_table", "to_arrow_table"), "to_arrow()"),
    **dict.fromkeys(("fetch_record_batch", "fetch_arrow_reader", "iter_rows"), "batches()"),
    **dict.fromkeys(("to_dicts", "rows"), "to_pylist()"),
    "to_parquet": "write_parquet(path)",
    "to_csv": "write_csv(path)",
    **dict.fromkeys(("rows", "collect"), "fetchall()"),
    "head": "limit(10)",
    "describe": "schema",
}


class Answer(ABC):
    """Record batches of one schema, found one after another, with their accuracy, completeness and cost.

    Nothing runs before something is requested; properties of the whole answer run it to the end.
    room: bytes that it may take when it is held whole; None: half of the machine's memory.
    """

    room: int | None = None

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
        """All rows.  Raises MemoryRefused for more than half of the machine's memory, or than `memory=` allows."""
        return pa.Table.from_batches(self._held(self.batches()), schema=self.schema)

    def _held(self, batches: Iterator[pa.RecordBatch]) -> list[pa.RecordBatch]:
        with within(self.room):
            return held_together(batches)

    def to_pylist(self) -> list[dict[str, Any]]:
        """All rows as dicts of Python values; times are cut to microseconds (`nile.rows`)."""
        return dicts(self.to_arrow())

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

    def write_parquet(self, path: str | Path) -> int:
        """Write the rows to a Parquet file as they are found, holding one row group at a time; returns how many.

        The file appears, or replaces an existing one, when it is complete.  Raises ConfigError.
        """
        return write(self.batches(), self.schema, path, "parquet")

    def write_csv(self, path: str | Path) -> int:
        """As `write_parquet`, as CSV with a header.  Lists, structs and maps have no such form: ConfigError."""
        return write(self.batches(), self.schema, path, "csv")

    def show(self, limit: int | None = 20) -> None:
        """Print the first rows as a table, as wide as the terminal; limit: how many (None: all).

        Reads no further than it shows.
        """
        rows, more = first_rows(self.batches(), limit)
        width = shutil.get_terminal_size().columns
        types = [str(field.type) for field in self.schema]
        sys.stdout.write(render(self.schema.names, types, rows, "table", width=width))
        if more:
            sys.stdout.write(f"the first {len(rows):,} rows; show(None) prints all\n")
        for each in self.left_out():
            sys.stdout.write(f"{each}\n")

    def left_out(self) -> tuple[str, ...]:
        """What rows of its streams are not in it, as far as they were read: a sentence a stream.  Runs nothing."""
        return ()

    def __getattr__(self, name: str) -> Any:
        """What is not there; a name that DuckDB or Polars have for it says Nile's."""
        hint = f"; write {_CALLED_HERE[name]}" if name in _CALLED_HERE else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

    def plot(self, column: str | None = None, *, bins: int = 20) -> Plot:
        """A histogram of the rows by one column (None: the first), which a notebook shows and `save` writes as a page.

        Rows of a weighted answer count with their weights.  Numbers and times fall into `bins` equal intervals; of
        other types the most frequent values show.  Holds all rows.  Raises UnknownColumn, ConfigError, MemoryRefused.
        """
        table = self.to_arrow()
        weight = next((name for name in ("_weight", "weight") if name in table.column_names), None)
        note = "rows as they were found" if weight is None else "by weights; without intervals"
        weights = np.ones(table.num_rows) if weight is None else np.asarray(table[weight], np.float64)
        return self._histogram(table, column, weights, note, bins, None)

    def can_plot(self, column: str | None) -> bool:
        """Whether `plot` knows the column."""
        return column is None or column in self.schema.names

    def _histogram(
        self, table: pa.Table, column: str | None, weights: Any, note: str, bins: int, reach: Reach | None
    ) -> Plot:
        names = table.column_names
        called = names[0] if column is None else column
        if called not in names:
            raise UnknownColumn(f"plot: needed one of {', '.join(names)}; got {called!r}; name one")
        values = table[called].combine_chunks()
        return histogram(values, weights, across=called, up="rows", note=note, bins=bins, reach=reach)

    def _repr_html_(self) -> str:
        """For a notebook: the first rows there are and, once all were found, what they are worth.  Runs nothing."""
        head, done = self._seen()
        columns = [(field.name, str(field.type)) for field in self.schema]
        rows = [] if head is None else [list(map(text, row)) for row in tuples(head)]
        if not done:
            return in_a_notebook(self._state(), columns, rows)
        told = self.overall
        facts = [] if told is None else [("the exact answer", worded(told))]
        facts += [("coverage", f"{self.coverage:.3g}"), ("spent", f"{self.budget.fraction:.3g} of the exact work")]
        return in_a_notebook(self._state(), columns, rows, facts, self.warnings)

    def _state(self) -> str:
        """How far it has come, in words."""
        return repr(self).strip("<>")

    @abstractmethod
    def _seen(self) -> tuple[pa.RecordBatch | None, bool]:
        """The first rows, at most SHOWN, as far as found; whether all were, of an answer that may fall short."""

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
        """The accounting of each stream, in the query's order: in = applied + late + shed + rejected."""

    @property
    def coverage(self) -> float:
        """The share of the window, in time, that was still held."""
        return 1.0

    @property
    def overall(self) -> Estimate | None:
        """How many rows the exact answer has, as estimated from this one; for a single number, that number.

        None: unknown.
        """
        return None

    @property
    def bounds(self) -> TotalBounds | None:
        """Of a join: how many outputs the exact answer has, by sketches of all tuples.  None of other answers."""
        return None

    @property
    def bounds_at_once(self) -> TotalBounds | None:
        """`bounds`, where they take no time to speak of; else None."""
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

        The query is rerun over the data it has read: for each of `budgets` (fractions of the exact work; None: 1 % to
        100 %), for `seeds` seeds (5), and by each opponent that `against` names besides "exact" (for joins of two
        streams, if it names none: hash-drop, shed-uniform, hash-keys, and under desc hash-backlog).
        engine: what computes the exact pairs of a join of two streams, "local" (in this process) or "spark".  path:
        where to write the report (`AccuracyReport.save`).  on_progress: called after each run.
        Raises ConfigError for an answer that is exact, BudgetError, MemoryRefused, JavaMissing, SparkFailed.
        """
        if path is not None:
            place_given(path, where="report")
        if on_progress is not None and not callable(on_progress):
            raise ConfigError(
                f"report, on_progress: needed something to call; got {type(on_progress).__name__}; leave it out"
            )
        told = self.measured(Wanted(budgets, seeds, against, engine, on_progress))
        if path is not None:
            told.save(path)
        return told

    @abstractmethod
    def measured(self, wanted: Wanted) -> AccuracyReport:
        """The body of `report`."""
