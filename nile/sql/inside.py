"""Which statements touch nothing outside the database: what untrusted text may contain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nile.sql.statements import Copy, CreateRelation, CreateSensors, CreateSink, CreateStream, Statement
from nile.summaries.errors import ConfigError, SqlError

__all__ = ["check_names_no_file", "check_options_name_no_file", "check_stays_inside"]

_ADVICE = "register it where the database is opened, and say its name"


def check_names_no_file(paths: Sequence[str]) -> None:
    """Of what stands in FROM.  Raises SqlError where it names files; does not look whether they are there."""
    if paths:
        raise SqlError(f"FROM: needed names of streams and relations here; got the path of a file; {_ADVICE}")


def check_options_name_no_file(options: Mapping[str, Any]) -> None:
    """Raises ConfigError where the rows of a query would be written by their side."""
    for name in ("into", "checkpoint"):
        if name in options:
            raise ConfigError(f"{name}: needed options that name no file here; got one; start it where the database is")


def check_stays_inside(statement: Statement) -> None:
    """Raises SqlError for a statement that reads or writes files, connects somewhere, or loads code that it names."""
    match statement:
        case Copy():
            raise SqlError(
                "COPY: needed a statement that writes no file here; got COPY; ask its query, and keep the rows"
            )
        case CreateSensors():
            raise SqlError(
                "CREATE SENSORS: needed a statement that loads no code here; got one; make them where the database "
                "is opened"
            )
        case CreateSink():
            raise SqlError(
                f"CREATE SINK: needed a statement that sends nothing anywhere here; got {statement.using.upper()}; "
                "make it where the database is opened"
            )
        case CreateStream() if statement.using is not None:
            raise SqlError(
                f"CREATE STREAM: needed one that connects to nothing here; got {statement.using.upper()}; "
                "make it where the database is opened"
            )
        case CreateStream() | CreateRelation() if not statement.registered and not statement.columns:
            raise SqlError(f"CREATE: needed a source that is registered; got the path of a file; {_ADVICE}")
        case _:
            return
