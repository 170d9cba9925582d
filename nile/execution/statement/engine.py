"""What statements ask of a database, and how they find a name in it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from nile.answers.result import Result
from nile.execution.approximate.join import ApproximateHome
from nile.execution.options import Options
from nile.execution.progress.input import Kept
from nile.execution.reading import Readable
from nile.execution.statement.expected import Counts
from nile.sensors.source import SensorsSource
from nile.sql.catalog import Entry
from nile.sql.plan import Query, Relation, Stream
from nile.sql.statements import CreateSummary, CreateView
from nile.summaries.errors import UnknownStream

if TYPE_CHECKING:
    from nile.execution.registry import Registered
    from nile.operators.inputs.shared_grid import SharedSummary

__all__ = ["Engine", "known_name", "near_names"]


class Engine(ApproximateHome, Readable, Counts, Kept, Protocol):
    """What statements ask of a database."""

    @property
    def entries(self) -> Mapping[str, Entry]:
        """All streams and stored relations."""

    @property
    def summaries(self) -> Mapping[str, CreateSummary]:
        """All summaries."""

    @property
    def views(self) -> Mapping[str, CreateView]:
        """All views."""

    def snapshot(self, leaves: Sequence[Stream | Relation] = ()) -> Engine:
        """The names as they are now, for a query with these leaves."""

    def scanned(self, query: Query, options: Options) -> Result:
        """A query on Spark: a scan of the lake, or a standing query.  Raises NotYet, ConfigError, BudgetError."""

    def register(self, name: str, source: Any, *, time: Any, where: Any, lateness: Any) -> Any:
        """Make a stream or a stored relation known."""

    def sensors(self, name: str) -> SensorsSource | None:
        """One that is a table of sensors."""

    def stream(self, name: str) -> Registered:
        """One that is a stream."""

    def unregister(self, name: str) -> None:
        """Forget one."""

    def adopt(self, name: str) -> tuple[Any, str | None]:
        """The source of a registered name and the condition that selects its rows, as text."""

    def grid(self, name: str) -> SharedSummary:
        """What a summary of that name is."""

    def keep_summary(self, summary: CreateSummary) -> None:
        """Make a summary known."""

    def forget_summary(self, name: str) -> None:
        """Forget one."""

    def keep_view(self, view: CreateView) -> None:
        """Make a view known."""

    def forget_view(self, name: str) -> None:
        """Forget one."""


def near_names(name: str, known: list[str]) -> str:
    """What a message adds of an unknown name: the known one most like it, or all."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; there are {', '.join(known) or 'none'}"


def known_name(engine: Engine, name: str) -> str:
    """A registered name, as it is written or the only one that differs in capitals."""
    if name in engine.entries:
        return name
    alike = [each for each in engine.entries if each.lower() == name.lower()]
    if len(alike) == 1:
        return alike[0]
    raise UnknownStream(f"'{name}' is not registered{near_names(name, list(engine.entries))}")
