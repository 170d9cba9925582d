"""Plans between streams and relations: relations as streams, samples of streams, windows, and when rows are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from nile.exact.plan.windows import Window
from nile.exact.state.arrow import Array

if TYPE_CHECKING:
    import pyarrow

    from nile.exact.plan.algebra import Plan

__all__ = ["Every", "Hop", "OnClose", "Sample", "ToStream", "Windowed"]


@dataclass(frozen=True, slots=True)
class ToStream:
    """A relation as a stream: rows it gains (istream), loses (dstream) or, where it changes, has (rstream)."""

    input: Plan
    kind: Literal["istream", "dstream", "rstream"]

    @property
    def schema(self) -> pyarrow.Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True)
class Sample:
    """Each tuple of a stream with probability `share`: its number among them and the seed say whether."""

    input: ToStream
    share: float
    seed: int

    @property
    def schema(self) -> pyarrow.Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True)
class Windowed:
    """A stream that a plan gives, in a window.  position: its place in the statement."""

    input: ToStream | Sample
    window: Window
    position: int

    @property
    def schema(self) -> pyarrow.Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True)
class Hop:
    """Rows once for each window of fixed bounds that they are in.

    spread: of rows (those rows, which row each is of int64 [n], when its window ends int64 [n] ns); closes: they go
    when their window ends.
    """

    input: Plan
    spread: Callable[[pyarrow.RecordBatch], tuple[pyarrow.RecordBatch, Array, Array]]
    schema: pyarrow.Schema
    closes: bool


@dataclass(frozen=True, slots=True)
class OnClose:
    """Rows that go at the instant that their column `end` (timestamp[us]) says, as new tuples without it."""

    input: Plan
    end: str
    schema: pyarrow.Schema


@dataclass(frozen=True, slots=True)
class Every:
    """The changes between two multiples of `step` ns, at the later one."""

    input: Plan
    step: int

    @property
    def schema(self) -> pyarrow.Schema:
        return self.input.schema
