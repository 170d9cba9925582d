"""A bound query made cheaper without changing what it means: a tuple of pure functions."""

from __future__ import annotations

from collections.abc import Callable

from nile.sql.catalog import Catalog
from nile.sql.plan import Query

__all__ = ["REWRITES", "rewrite"]

Rewrite = Callable[[Query, Catalog], Query]

REWRITES: tuple[Rewrite, ...] = ()


def rewrite(query: Query, catalog: Catalog) -> Query:
    """The query after all REWRITES, in order.  Pure."""
    for step in REWRITES:
        query = step(query, catalog)
    return query
