"""Joins of several streams, under windows, and aggregates over joins, as answers that grow: by rounds of more budget.

Design.  What has no order over key indices to be found in is run as a one-shot query is, first under a sixty-fourth of
the exact work, then under four times as much, until the whole of it is granted.  Rows that were told stay: a round adds
those that no round before it has found.  Numbers, and rows of a random sample, replace those of the round before: each
round's sample is one of its own.  Cost: 1.33 times the exact answer's, and the streams read once a round.  The first
answer comes after the first round.
Source: the doubling of online aggregation over joins (ripple joins), here over budgets instead of tuples.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from nile.answers.progress import Progressive
from nile.execution.approximate.attributes import attributed
from nile.execution.approximate.join import ApproximateHome, PreferredJoin
from nile.execution.approximate.run import WEIGHT, Prepared, approximate
from nile.execution.approximate.shape import Shape
from nile.execution.approximate.topped import numbers_shown
from nile.execution.options import Options
from nile.execution.progress.input import Kept
from nile.execution.progress.output import Found
from nile.preferences.budget import Budget
from nile.sql.catalog import Catalog
from nile.sql.plan import Preference, Query, Sort
from nile.summaries.errors import ConfigError, CostWarning, NotYet
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa

__all__ = ["ProgressiveRounds", "RoundsHome"]

Array = np.ndarray[Any, Any]
SHARES = (1 / 64, 1 / 16, 1 / 4, 1.0)


class RoundsHome(Kept, ApproximateHome, Catalog, Protocol):
    """What is asked of a database."""


class ProgressiveRounds(Progressive):
    """SELECT columns or aggregates FROM streams WHERE keys are equal [WITH PREFERENCE kind key] [WINDOW ...].

    coverage: the share of the exact work that the last round was granted.
    """

    def __init__(self, engine: RoundsHome, query: Query, shape: Shape, options: Options) -> None:
        """Checked, nothing read.  Raises NotYet, ConfigError."""
        kind = "" if query.preference is None else query.preference.kind
        if shape.group is not None and kind in ("desc", "asc"):
            raise NotYet(
                f"progress: needed aggregates of a random sample, WITH PREFERENCE weighted or none; got {kind}; leave "
                "it out"
            )
        if shape.group is None and any(isinstance(step, Sort) for step in shape.top):
            raise ConfigError(
                "progress: needed rows in any order, so that what is reported stays; got ORDER BY, which must see all "
                "of them first; leave it out, or read the result with to_arrow()"
            )
        if query.preference is None:
            query = replace(query, preference=Preference("desc" if shape.group is None else "weighted"))
        self.kind = kind
        self.replaces = shape.group is not None or kind == "weighted"
        self._engine, self._query, self._options = engine, attributed(query, engine), options
        self._shape = shape
        self._found = None if self.replaces else Found(shape)
        first = self._prepared(SHARES[0])
        self.schema = first.schema if self._found is None else self._found.schema
        self._told = first.operator.explain()
        self._granted = 0.0
        self._seen: Array | None = None
        self._rows: list[pa.RecordBatch] = []
        self._news = False
        self._whole = False
        self._shown: Mapping[str, Sequence[Estimate]] = {}
        self._estimate = Estimate.between(0.0, 0.0, float("inf"))
        self._covered = 0.0

    def _prepared(self, share: float) -> Prepared:
        return approximate(self._engine, self._query, replace(self._options, budget=Budget(share)))

    def steps(self) -> Generator[None]:
        for share in SHARES:
            prepared = self._prepared(share)
            with warnings.catch_warnings():
                # The rounds are this operator's, and so is what they cost.
                warnings.simplefilter("ignore", CostWarning)
                if self._shape.group is not None:
                    self._number(prepared, share)
                elif self.replaces:
                    self._sample(prepared, share)
                else:
                    self._add(prepared, share)
            self._granted, self._whole = share, share == 1.0
            yield None
            if self._found is not None and self._found.is_full:
                return

    def _number(self, prepared: Prepared, share: float) -> None:
        """A round of aggregates: what they are by its sample."""
        group = self._shape.group
        assert group is not None
        batch, self._shown = numbers_shown(self._shape, prepared.answer(), self.schema)
        self._rows, self._news = [batch], True
        single = [each for each in self._shown.values() if len(each) == 1]
        if not group.by and len(single) == len(self._shown) == 1:
            self._estimate = single[0][0]
        else:
            seen = float(batch.num_rows)
            self._estimate = Estimate.exact(seen) if share == 1.0 else Estimate.between(seen, seen, float("inf"))
        self._covered = share

    def _sample(self, prepared: Prepared, share: float) -> None:
        """A round of a random sample: its rows, each with its weight."""
        run = prepared.start()
        self._rows, self._news = list(run.batches()), True
        rows = float(sum(batch.num_rows for batch in self._rows))
        told = run.estimate
        self._estimate = Estimate.exact(rows) if share == 1.0 or told is None else told
        self._covered = share

    def _add(self, prepared: Prepared, share: float) -> None:
        """A round of rows by preference: those that are new."""
        operator, found = prepared.operator, self._found
        assert isinstance(operator, PreferredJoin)
        assert found is not None
        answer: Any = prepared.answer()
        members = [np.stack(ordinals, axis=1) for ordinals, _ in answer.found_members()]
        none = np.zeros((0, len(operator.aliases)), np.int64)
        known = none if self._seen is None else self._seen
        every = np.concatenate([known, *members])
        _, first = np.unique(every, axis=0, return_index=True)
        first.sort()
        new = every[first[first >= known.shape[0]]]
        self._seen = np.concatenate([known, new])
        if new.shape[0]:  # a stream without a tuple has no columns
            columns = [answer.carried(k, new[:, k]) for k in range(new.shape[1])]
            held, at = zip(*columns, strict=True)
            batch = operator.taken(held, at, np.ones(new.shape[0]))
            found.add(found.made(batch.select([name for name in batch.schema.names if name != WEIGHT])))
        seen = float(self._seen.shape[0]) if not found.selects else 0.0
        self._estimate = Estimate.exact(seen) if share == 1.0 else Estimate.between(seen, seen, float("inf"))
        self._covered = share

    def take(self) -> list[pa.RecordBatch]:
        self._news = False
        return self._rows if self._found is None else self._found.take()

    @property
    def has_news(self) -> bool:
        return self._news if self._found is None else self._found.has_news

    @property
    def coverage(self) -> float:
        return 1.0 if self._found is not None and self._found.is_full else self._covered

    @property
    def estimate(self) -> Estimate:
        return self._estimate if self._found is None else self._found.limited(self._estimate)

    @property
    def estimates(self) -> Mapping[str, Sequence[Estimate]]:
        return self._shown

    def explain(self) -> list[str]:
        """How a round runs, and how far it has come."""
        first, *rest = self._told.splitlines()
        how = "each replaces the one before" if self.replaces else "each adds what is new"
        rounds = ", ".join(f"{share:.3g}" for share in SHARES)
        return [
            f"progressive: by rounds of {rounds} of the exact work, {how}",
            f"  the first of them: {first}",
            *rest,
            f"  coverage {self.coverage:.6g}",
        ]
