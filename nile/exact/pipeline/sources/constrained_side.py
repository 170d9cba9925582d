"""One stream of a join by constraints: its rows, which may find a partner, and what is known of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from nile.exact.pipeline.sources.incoming import Incoming
from nile.exact.pipeline.sources.ordered_marks import Marks
from nile.exact.plan.algebra import Project, Scan, Select
from nile.exact.plan.constraints import Promise
from nile.exact.state.arrow import Array
from nile.exact.state.rows import RowTable, grown
from nile.exact.state.words import Encoder

__all__ = ["BORN", "VALUE", "WIDTH", "Chain", "Come", "Side"]

Chain = tuple[Scan, list[Select | Project]]
VALUE, BORN, WIDTH = 6, 7, 8  # of a row, as in the kernels


@dataclass
class Come:
    """Tuples of one side whose key is not null; deadline: the ordinal of the parents' from which on there is none."""

    ordinals: Array
    ts: Array
    rows: Any
    deadline: Array


class Side:
    """One stream's rows, and what is known of it.  order, cluster: its own promises."""

    HELD: ClassVar = ("marks", "recent")
    DERIVED: ClassVar = ("arrivals", "schema", "window", "at", "cluster", "table", "rows", "value_at", "values")

    def __init__(self, chain: Chain, at: list[int], order: Promise | None, cluster: Promise | None) -> None:
        self.arrivals = Incoming(*chain)
        self.schema = self.arrivals.schema
        self.window = chain[0].window
        self.at = at
        self.cluster = cluster
        self.marks = None if order is None else Marks(order)
        self.value_at: int | None = None
        self.values: Encoder | None = None
        self.table = RowTable(self.schema.types, exact=True, extra=1)
        self.rows = np.zeros((1, WIDTH), np.int64)
        self.recent = np.zeros(0, np.int64)  # links of the last positions of its clusters

    @property
    def within(self) -> int:
        """k of its clusters; -1: nothing is known of them."""
        within = None if self.cluster is None else self.cluster.constraint.within
        return -1 if within is None else within

    def of_values(self, rows: Any) -> Array:
        """What an order goes by: int64 [n]."""
        if self.values is None or self.value_at is None:
            return np.zeros(rows.num_rows, np.int64)
        return np.ascontiguousarray(self.values.encode([rows.column(self.value_at)])[:, 0])

    def put(self, rows: Any, ordinals: Array) -> Array:
        """Rows as they come: their codes."""
        words = np.empty((rows.num_rows, self.table.kept.shape[1]), np.int64)
        words[:, :-1] = self.table.encoder.encode(rows.columns)
        words[:, -1] = ordinals  # equal rows are two
        codes = self.table.codes(words)
        self.rows = grown(self.rows, self.table.room)
        self.rows[codes, BORN] = ordinals
        self.rows[codes, VALUE] = self.of_values(rows)
        return codes

    @property
    def memory(self) -> int:
        own = 0 if self.marks is None else self.marks.memory
        return own + self.table.memory + int(self.rows.nbytes + self.recent.nbytes) + self.arrivals.memory
