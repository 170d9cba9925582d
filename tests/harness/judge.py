"""DuckDB as a judge: connections to one database, each of which knows only what is registered with it."""

from __future__ import annotations

from functools import cache
from typing import Any

import duckdb

__all__ = ["fresh_duckdb"]


@cache
def _database() -> Any:
    return duckdb.connect(config={"threads": 1})


def fresh_duckdb() -> Any:
    """A connection without relations: a millisecond, where a database of its own takes twelve to begin and to end.

    Register what it reads, or CREATE TEMP: other tables all connections would see.
    """
    return _database().cursor()
