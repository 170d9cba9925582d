"""What a query asks of the database that it was made by."""

from __future__ import annotations

from typing import Protocol

from nile.operators.inputs.joining import Loaded
from nile.operators.inputs.loading import Columns
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

    def load_columns(self, name: str, columns: tuple[str, ...], *, key: str | None = None) -> Columns:
        """Several columns of a stream, in order.  key: of a join that numbers its tuples alike; None: no join."""

    def load(self, name: str, key: str) -> Loaded:
        """A stream read to its end, in order."""
