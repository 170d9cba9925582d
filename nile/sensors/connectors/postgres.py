"""Tables of PostgreSQL, by logical replication and the extra `nile-streams[postgres]`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from nile.sensors.connectors.messages import Messages, options_of
from nile.sensors.sensor import NEW_VALUE, NO_VALUE
from nile.summaries.errors import SourceError
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

__all__ = ["InsertedRows", "cells"]

client = lazy("psycopg")
_MOST = 4096
"""Changes of one read, up to the end of the transaction in which that many have been met."""
_CELL = re.compile(r"(\"(?:[^\"]|\"\")+\"|\w+)\[((?:[^\[\]]|\[\])+)\]:('(?:[^']|'')*'|\S+)")


class InsertedRows(Messages):
    """USING 'postgres': each row that is inserted into a table and committed; it does not end.

    address: postgresql://user@host/database?table=name&slot=name, and `&time=` the column of the time.  A table that
    is not on the search path is schema.name.  The columns are the stream's fields, by name.  The slot is made where
    there is none: from then on the server keeps what nobody has read, also while no process reads; drop it with
    pg_drop_replication_slot when it is needed no more.  Rows are acknowledged after they have been given; it knows the
    last transaction that it has read, so that a connection that breaks loses nothing and repeats nothing.
    The server needs wal_level = logical, the user REPLICATION.  Updates and deletions are no values.
    """

    every = 0.02
    restarts = None
    acknowledges = True

    def init(self, address: Any, row: Mapping[str, Any]) -> None:  # noqa: ARG002
        where = "sensors USING 'postgres'"
        parts, url, options = options_of(address, ("table", "slot", "time"), where=where)
        table, self._slot = options.get("table"), options.get("slot", "")
        if parts.scheme not in ("postgres", "postgresql") or not table or not re.fullmatch("[a-z0-9_]+", self._slot):
            raise SourceError(
                f"{where}: needed postgresql://host/database?table=name&slot=name, the slot in small letters; "
                f"got {address!r}"
            )
        self.time_name, self._acknowledged = options.get("time"), None
        try:
            self._client = client.connect(url, autocommit=True, connect_timeout=5)
        except ImportError:
            raise SourceError(f"{where}: needed the package psycopg; install nile-streams[postgres]") from None
        self._table = self._one("SELECT %s::regclass::oid", table)
        self._name = self._one(
            "SELECT quote_ident(nspname) || '.' || quote_ident(relname) FROM pg_class JOIN pg_namespace n "
            "ON n.oid = relnamespace WHERE pg_class.oid = %s", self._table
        )  # fmt: skip
        if self._one("SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s", self._slot) == 0:
            try:
                self._one("SELECT pg_create_logical_replication_slot(%s, 'test_decoding')::text", self._slot)
            except client.errors.ObjectNotInPrerequisiteState as error:
                raise SourceError(f"{where}: needed a server with wal_level = logical; got {error}") from None

    def read(self) -> Any:
        if self.place != self._acknowledged:  # what was read before has been given by now
            self._one("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)::text", self._slot, self.place)
            self._acknowledged = self.place
        asked = "SELECT lsn::text, data FROM pg_logical_slot_peek_changes(%s, NULL, %s, 'include-xids', '0')"
        found = self._client.execute(asked, (self._slot, _MOST)).fetchall()
        values: list[Any] = []
        times: list[Any] = []
        begins = f"table {self._name}: INSERT: "
        for place, text in found:
            if text.startswith(begins):
                said = dict(cells(text[len(begins) :]))
                values.append({name: self._cell(said[name], name) for name in self.fields.names if name in said})
                times.append(None if self.time_name is None else said.get(self.time_name, ""))
            elif text.startswith("COMMIT"):
                self.place = place
        if not values:
            return NO_VALUE
        return (NEW_VALUE, values) if self.time_name is None else (NEW_VALUE, values, list(map(_moment, times)))

    def close(self) -> None:
        made = getattr(self, "_client", None)
        if made is not None:
            made.close()

    def _one(self, query: str, *given: Any) -> Any:
        return self._client.execute(query, given).fetchone()[0]

    def _cell(self, text: str | None, name: str) -> Any:
        kind = self.fields.field(name).type
        if text is None or pa.types.is_string(kind):
            return text
        if pa.types.is_binary(kind):
            return bytes.fromhex(text.removeprefix("\\x"))
        if pa.types.is_list(kind) and text.startswith("{"):
            text = f"[{text[1:-1]}]".replace("NULL", "null")
        try:
            return {"t": True, "f": False}[text] if text in ("t", "f") else json.loads(text)
        except ValueError:
            words = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
            return text if pa.types.is_temporal(kind) else words.get(text, object())


def cells(text: str) -> Iterator[tuple[str, str | None]]:
    """(column, its text; None: null) of a row as test_decoding writes it: a[integer]:1 "b c"[text]:'it''s'."""
    for found in _CELL.finditer(text):
        name, value = found[1], found[3]
        name = name[1:-1].replace('""', '"') if name.startswith('"') else name
        if value.startswith("'"):
            yield name, value[1:-1].replace("''", "'")
        else:
            yield name, None if value == "null" else value


def _moment(text: str | None) -> Any:
    """A time as text, or as seconds where it is a number."""
    try:
        return float(text or "")
    except ValueError:
        return text or ""
