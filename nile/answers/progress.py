"""How a statement runs, as its result reads it: once to its end, or as a growing answer that can be stopped."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from inspect import GEN_RUNNING, getgeneratorstate
from types import TracebackType
from typing import Any

from nile.answers.answer import SHOWN
from nile.answers.python_rows import text, tuples
from nile.base.durations import parse_duration
from nile.operators.common.total_bounds import TotalBounds
from nile.preferences.budget import BudgetReport
from nile.report.pages.notebook import in_a_notebook, worded
from nile.streams.accounting import Accounting
from nile.summaries.errors import ConfigError
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa

__all__ = ["Partial", "Progress", "Progressive", "Run"]


class Run(ABC):
    """One execution of a statement; the defaults are those of an exact one.

    schema: the columns of its batches.  answer: an approximate operator's own answer, with all its figures, or None.
    held_whole: whether the reader will hold all batches, so that more than can be held is refused beforehand.
    """

    schema: pa.Schema
    answer: Any = None
    held_whole: bool = False

    @abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, as they are found."""

    @property
    def accounting(self) -> dict[str, Accounting]:
        """Of each stream: in = applied + late + shed + rejected."""
        return {}

    @property
    def memory(self) -> int:
        """Bytes held beside the output."""
        return 0

    @property
    def spilled(self) -> int:
        """Bytes written to temporary files so far, for rows that memory did not hold."""
        return 0

    @property
    def budget(self) -> BudgetReport:
        """Asked and spent."""
        return BudgetReport(1.0, 1.0, "fraction", 1.0)

    @property
    def coverage(self) -> float:
        """The share of what was asked about, in time, that was still held."""
        return 1.0

    @property
    def estimate(self) -> Estimate | None:
        """The number of outputs of the exact answer, or the value of a single aggregate; None: as many as there are."""
        return None

    @property
    def estimates(self) -> Mapping[str, Sequence[Estimate]]:
        """Of approximate aggregates: each number with its interval, by column, one per row."""
        return {}

    @property
    def bounds(self) -> TotalBounds | None:
        """Of outputs of a join that are the rows: how many there are, by sketches of all tuples; else None."""
        return None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What should be known before the rows are used."""
        return ()

    def worth(self) -> str | None:
        """How good the answer is, in a few words; None if it is complete and exact."""
        return None


class Progressive(ABC):
    """A validated statement with a progressive answer; nothing is read before `steps`.

    replaces: whether each answer replaces the previous one (aggregates) or adds to it (rows).
    schema: the columns of its rows.
    """

    replaces = False
    schema: pa.Schema

    @abstractmethod
    def steps(self) -> Generator[None]:
        """Pieces of work of a few milliseconds each."""

    @abstractmethod
    def take(self) -> list[pa.RecordBatch]:
        """Rows found since the last call; where `replaces`, the answer as it is now."""

    @property
    @abstractmethod
    def has_news(self) -> bool:
        """Whether `take` would give rows."""

    @property
    def whole(self) -> bool:
        """Whether what there is after the last step is the full answer."""
        return True

    @property
    @abstractmethod
    def coverage(self) -> float:
        """The share of the answer that is certain to have been found; never falls."""

    @property
    @abstractmethod
    def estimate(self) -> Estimate:
        """How many rows the full answer has; for a single aggregate, its value."""

    @property
    def estimates(self) -> Mapping[str, Sequence[Estimate]]:
        """For aggregates: the interval of each number of the current answer, by column."""
        return {}

    @abstractmethod
    def explain(self) -> list[str]:
        """How it runs, and what it has done so far: lines."""


@dataclass(frozen=True, slots=True)
class Partial:
    """An answer so far.

    rows: batches found since the previous partial; for aggregates, whose numbers still change, the whole current
    answer.  coverage: 0 to 1, never falls; its base depends on the preference (docs/history.md).  estimate: how
    many rows the full answer has, or the value of a single aggregate.
    estimates: for aggregates, by column, one per row.  elapsed: seconds since the query began.  done: this is the full
    answer (even the last one is not, if a budget ended before it).
    """

    rows: tuple[pa.RecordBatch, ...]
    coverage: float
    estimate: Estimate
    elapsed: float
    done: bool
    estimates: Mapping[str, Sequence[Estimate]]
    schema: pa.Schema
    _found: list[pa.RecordBatch]
    _known: int

    def to_arrow(self) -> pa.Table:
        """All rows so far."""
        return pa.Table.from_batches(self._found[: self._known], self.schema)

    def __len__(self) -> int:
        """How many rows there are so far."""
        return sum(batch.num_rows for batch in self._found[: self._known])

    def __bool__(self) -> bool:
        return True

    def _repr_html_(self) -> str:
        """The first rows, and what they are worth, for a notebook."""
        head = [row for batch in self._found[: self._known] for row in tuples(batch.slice(0, SHOWN))][:SHOWN]
        columns = [(field.name, str(field.type)) for field in self.schema]
        facts = [("the full answer", worded(self.estimate)), ("coverage", f"{self.coverage:.3g}")]
        return in_a_notebook(repr(self).strip("<>"), columns, [list(map(text, row)) for row in head], facts)

    def __repr__(self) -> str:
        told = "done" if self.done else f"coverage {self.coverage:.3g}"
        return f"<nile.Partial: {len(self):,} rows, {told}, {self.elapsed:.3f} s>"


class Progress:
    """Partials at intervals: the first as soon as there are rows, the last with `done`.

    Iterate it once.  Leaving the loop, `close` or the end of a `with` stops the work and frees its memory; partials
    already returned stay valid.
    """

    def __init__(self, query: Progressive, every: str | float | timedelta) -> None:
        self.every = _seconds(every)
        self._query = query
        self._partials: Generator[Partial] | None = None
        self._closed = False

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self._query.schema

    def __iter__(self) -> Iterator[Partial]:
        if self._partials is not None:
            raise ConfigError(
                "progress: needed to be read once; got a second loop over it; call progress() again for a new run"
            )
        if self._closed:
            raise ConfigError(
                "progress: needed an open one; got one after close(), which read nothing; call progress() again"
            )
        self._partials = self._run()
        return self._partials

    def _run(self) -> Generator[Partial]:
        query, began = self._query, time.perf_counter()
        found: list[pa.RecordBatch] = []
        last = -math.inf
        steps = query.steps()
        try:
            for _ in steps:
                now = time.perf_counter()
                first = last == -math.inf
                if self._closed:
                    return
                if (first and query.has_news) or (not first and now - last >= self.every):
                    last = now
                    yield self._partial(found, now - began, done=False)
            yield self._partial(found, time.perf_counter() - began, done=query.whole)
        finally:
            steps.close()

    def _partial(self, found: list[pa.RecordBatch], elapsed: float, *, done: bool) -> Partial:
        query = self._query
        new = query.take()
        held = new if query.replaces else found
        if not query.replaces:
            found.extend(new)
        return Partial(
            tuple(new), query.coverage, query.estimate, elapsed, done, query.estimates, query.schema, held, len(held)
        )

    def explain(self) -> str:
        """How it runs, and the work so far: cells read and ruled out, tuples examined, bytes by tier."""
        return "\n".join(self._query.explain())

    def close(self) -> None:
        """Stop."""
        self._closed = True
        partials = self._partials
        if partials is not None and getgeneratorstate(partials) != GEN_RUNNING:
            partials.close()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _seconds(every: str | float | timedelta) -> float:
    if isinstance(every, int | float) and not isinstance(every, bool) and every == 0:
        return 0.0
    return parse_duration(every, where="progress, every") / 1e9
