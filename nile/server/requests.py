"""Requests, read and validated: statements with parameters and options, streams to create, positions to resume."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from nile.preferences.budget import BUDGET_UNITS, Budget
from nile.sensors.types import column_type
from nile.summaries.errors import ConfigError, EnvelopeError
from nile.summaries.heavy import pa
from nile.summaries.schemas import schema_from_json

__all__ = ["Asked", "Place", "read_asked", "read_json", "read_place", "read_schema", "read_wait"]

_NOT_HERE = ("engine", "files", "name", "callback", "unread", "when_full", "params", "text")
"""Options that are not a client's to choose."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A statement as `Database.sql` takes it."""

    text: str
    params: list[Any] | dict[str, Any] | None
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """An output: the query's epoch (None: whichever it is) and its ordinal (None: the next one that comes)."""

    epoch: int | None
    ordinal: int | None


def read_json(body: bytes, what: str) -> dict[str, Any]:
    """The object that a body is.  Raises ConfigError."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ConfigError(f"{what}: needed a JSON object; got {len(body)} bytes that are none; see docs/server.md")
    return found


def read_asked(body: bytes, media: str) -> Asked:
    """A statement, as text or as {"sql", "params", "options"}.  Raises ConfigError."""
    given = read_json(body, "statement") if media.startswith("application/json") else _asked_of(body)
    if given is None:
        try:
            return Asked(body.decode(), None, {})
        except UnicodeDecodeError:
            raise ConfigError("statement: needed text in UTF-8; got other bytes; convert it") from None
    text, params, options = given.get("sql"), given.get("params"), given.get("options", {})
    unknown = sorted(set(given) - {"sql", "params", "options"})
    if not isinstance(text, str) or not isinstance(options, dict) or unknown:
        raise ConfigError(
            f'statement: needed {{"sql": text, "params": [...], "options": {{...}}}}; got '
            f"{', '.join(unknown) or 'other values'}; see docs/server.md"
        )
    if not (params is None or isinstance(params, list | dict)):
        raise ConfigError(f"params: needed a list or an object; got {type(params).__name__}; write [1, 'tea']")
    return Asked(text, params, {name: _option(name, value) for name, value in options.items()})


def _asked_of(body: bytes) -> dict[str, Any] | None:
    """Such an object, whatever the media type says (curl -d says a form's); None: a statement, or a plan as JSON."""
    if not body.lstrip().startswith(b"{") or b'"sql"' not in body:
        return None
    try:
        given: dict[str, Any] = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return given if isinstance(given.get("sql"), str) else None


def _option(name: str, value: Any) -> Any:
    if name in _NOT_HERE:
        raise ConfigError(
            f"{name}: needed an option that a client may choose; got one that is the server's; leave it out"
        )
    if name == "budget" and isinstance(value, dict):
        if len(value) != 1 or not set(value) <= set(BUDGET_UNITS):
            raise ConfigError(f"budget: needed one of {', '.join(BUDGET_UNITS)}; got {', '.join(value) or 'none'}")
        return Budget(**value)
    if not (value is None or isinstance(value, str | int | float | bool)):
        raise ConfigError(f"{name}: needed text or a number; got {type(value).__name__}; leave it out")
    return value


def read_schema(value: Any, where: str) -> pa.Schema:
    """Of a stream: pairs of a name and a type of SQL, or what `schema_to_json` gives.  Raises ConfigError."""
    if isinstance(value, list) and all(
        isinstance(each, list) and len(each) == 2 and all(isinstance(part, str) for part in each) for each in value
    ):
        return pa.schema([(name, column_type(kind, where=where)) for name, kind in value])
    try:
        return schema_from_json(value, where)
    except EnvelopeError:
        raise ConfigError(
            f'{where}, schema: needed pairs of names and types, [["ts", "TIMESTAMP"], ["price", "DOUBLE"]]; got others'
        ) from None


def read_place(told: str | None) -> Place:
    """EPOCH:ORDINAL, `start` for the oldest that is still there, nothing for what comes from now on.

    Raises ConfigError.
    """
    if not told:
        return Place(None, None)
    if told == "start":
        return Place(None, 0)
    epoch, _, ordinal = told.partition(":")
    if not all(part.isascii() and part.isdigit() and len(part) < 20 for part in (epoch, ordinal)):
        raise ConfigError(
            f"from: needed EPOCH:ORDINAL, start, or nothing; got {told[:40]!r}; take it from the last line"
        )
    return Place(int(epoch), int(ordinal))


def read_wait(told: str | None) -> float | None:
    """Seconds, or None.  Raises ConfigError."""
    try:
        wait = None if told is None else float(told)
    except ValueError:
        wait = -1.0
    if wait is not None and not 0 <= wait <= 1e6:
        raise ConfigError(f"wait: needed seconds; got {(told or '')[:40]!r}; write wait=2.5, or leave it out")
    return wait
