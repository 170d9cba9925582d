"""What a query asks of the database that it was made by."""

from __future__ import annotations

from typing import Protocol

from nile.operators.inputs.shared_grid import SharedSummary
from nile.streams.manager import StreamManager
from nile.summaries.heavy import pa

__all__ = ["Home"]


class Home(Protocol):
    """Streams by name.  Each method raises UnknownStream for a name that is not one of them."""

    def manager(self, name: str, key: str, carry: tuple[str, ...] = ()) -> StreamManager:
        """A fresh manager over a stream.  key: its join key; carry: further columns."""

    def schema(self, name: str) -> pa.Schema:
        """The columns of a stream."""

    def time_column(self, name: str) -> str:
        """Its event-time column."""

    def shared(self, name: str, column: str) -> SharedSummary | None:
        """The summary of a stream's column that CREATE SUMMARY made; None where there is none."""

    @property
    def room(self) -> int | None:
        """Bytes that an answer which is held whole may take; None: half of the machine's memory."""
