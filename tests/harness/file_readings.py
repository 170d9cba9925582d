"""Which columns of Parquet files are read, and how often."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from nile.streams.files.parquet import ParquetSource

__all__ = ["readings"]


def readings(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The columns of each reading of a file, from now on."""
    seen: list[tuple[str, ...]] = []
    read = ParquetSource._batches

    def batches(self: ParquetSource, columns: Sequence[str], *given: Any) -> Iterator[Any]:
        seen.append(tuple(columns))
        return read(self, columns, *given)

    monkeypatch.setattr(ParquetSource, "_batches", batches)
    return seen
