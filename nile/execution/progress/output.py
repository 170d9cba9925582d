"""The output of a progressive operator, through what stands above it in the statement."""

from __future__ import annotations

from nile.execution.approximate.shape import Shape
from nile.execution.values import filtered, maker, schema_of
from nile.sql.plan import Filter, Limit, Project, Sort
from nile.summaries.errors import ConfigError
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa

__all__ = ["Found"]


class Found:
    """Rows found and not taken yet.  schema: of what comes out; as_is: of rows that no projection applies to."""

    def __init__(self, shape: Shape, as_is: pa.Schema | None = None) -> None:
        """Raises ConfigError for ORDER BY, which must see all rows before the first."""
        if any(isinstance(step, Sort) for step in shape.top):
            raise ConfigError(
                "progress: needed rows in any order, so that what is reported stays; got ORDER BY, which must see all "
                "of them first; leave it out, or read the result with to_arrow()"
            )
        limits = [step for step in shape.top if isinstance(step, Limit)]
        self._skip = limits[0].offset if limits else 0
        self._room = limits[0].count if limits else None
        self._most = self._room
        self._offset = self._skip
        self._steps = [
            (step, maker(step.items) if isinstance(step, Project) else None) for step in shape.above[::-1]
        ] if as_is is None else []  # fmt: skip
        self.selects = any(isinstance(step, Filter) for step, _ in self._steps)
        if as_is is not None:
            self.schema = as_is
        else:
            top = shape.above[0] if shape.above else shape.core
            self.schema = schema_of(top.fields)
        self._rows: list[pa.RecordBatch] = []

    def made(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of an operator through the selections and projections above it."""
        for step, make in self._steps:
            batch = filtered(step.condition, batch) if make is None else make(batch)  # type: ignore[union-attr]
        if batch.schema != self.schema:
            batch = pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)
        return batch

    def add(self, batch: pa.RecordBatch) -> None:
        """Rows that have come, cut to the LIMIT."""
        gone = min(self._skip, batch.num_rows)
        self._skip -= gone
        part = batch.slice(gone, self._room)
        if self._room is not None:
            self._room -= part.num_rows
        if part.num_rows:
            self._rows.append(part)

    def take(self) -> list[pa.RecordBatch]:
        """Rows since the last call."""
        rows, self._rows = self._rows, []
        return rows

    @property
    def has_news(self) -> bool:
        """Whether there are any."""
        return bool(self._rows)

    @property
    def is_full(self) -> bool:
        """Whether the LIMIT is reached."""
        return self._room == 0

    def limited(self, rows: Estimate) -> Estimate:
        """How many rows there are after the LIMIT, of an estimate of those before it."""
        if self._most is None and not self._offset:
            return rows
        low, value, high = (
            max(0.0, min(float(each) - self._offset, float("inf") if self._most is None else self._most))
            for each in (rows.low, rows.value, rows.high)
        )
        return Estimate(value, low, high, rows.confidence, rows.certified)
