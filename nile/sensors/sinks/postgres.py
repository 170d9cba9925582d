"""Tables of PostgreSQL that rows are inserted into, by the extra `nile-streams[postgres]`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import SplitResult

from nile.base.show import jsonable
from nile.sensors.sinks.sink import Sink
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

__all__ = ["InsertedInto"]

client = lazy("psycopg")


class InsertedInto(Sink):
    """TO POSTGRES 'postgresql://user@host/database?table=name': rows are inserted, each batch in one transaction.

    Columns go by their names; a table that is not on the search path is schema.name.  A row that a unique constraint
    does not let in is left out: with `&id=name` and a unique column of that name, each row is there exactly once.
    """

    using = "postgres"
    form = "postgresql://host/database?table=name"
    own = ("table",)

    def fits(self, parts: SplitResult) -> bool:
        return parts.scheme in ("postgres", "postgresql") and bool(self.options.get("table"))

    def open(self) -> None:
        try:
            self._client = client.connect(self.url, connect_timeout=5, options="-c statement_timeout=10000")
        except ImportError:
            raise self.missing("psycopg") from None
        with self._client.transaction():
            found = self._client.execute(
                "SELECT nspname, relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace "
                "WHERE pg_class.oid = %s::regclass", (self.options["table"],)
            ).fetchone()  # fmt: skip
        sql = client.sql
        self._insert = sql.SQL("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT DO NOTHING").format(
            sql.Identifier(*found),
            sql.SQL(", ").join(map(sql.Identifier, self.columns)),
            sql.SQL(", ").join([sql.Placeholder()] * len(self.columns)),
        )

    def send(self, rows: pa.RecordBatch, ids: Sequence[str]) -> None:
        with self._client.transaction(), self._client.cursor() as cursor:
            cursor.executemany(self._insert, [tuple(map(_cell, row)) for row in self.values(rows, ids)])

    def close(self) -> None:
        made = getattr(self, "_client", None)
        if made is not None:
            made.close()


def _cell(value: Any) -> Any:
    """Structures as JSON; the rest as Python has it."""
    return json.dumps(jsonable(value)) if isinstance(value, dict) else value
