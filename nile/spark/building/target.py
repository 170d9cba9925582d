"""The stream of a store that a build fills: its target state, and what the store holds of it already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nile.base.raw import check_columns
from nile.durable.keeper import Keeper
from nile.execution.definitions import StreamDefinition
from nile.execution.live.live import Live
from nile.execution.options import Options
from nile.execution.registry import Registry
from nile.execution.statement.builder import read_query
from nile.execution.statement.statements import run_statement
from nile.pyramid.disk.directory import StoreDirectory
from nile.pyramid.disk.manifest import StoredFile
from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.history.history import History
from nile.pyramid.lake.lake import LakeStream
from nile.spark.building.plan import Held, Wanted
from nile.sql.plan import leaves_of
from nile.sql.reading_statements import read_statement
from nile.sql.statements import CreateSummary
from nile.streams.live import LiveStream
from nile.summaries.errors import ConfigError
from nile.summaries.key_types import key_family

__all__ = ["Target", "is_of", "offset_of", "target_of"]

Files = Mapping[tuple[int, int], StoredFile]


@dataclass(frozen=True, slots=True)
class Target:
    """A stream of a store that is open for writing.

    history: of the stream, a new one where there was none; summaries: all that it has or shall have, each with the
    manager to bring on; indexed: the columns to index; tuples: how many it has.
    """

    directory: StoreDirectory
    live: Live
    name: str
    definition: StreamDefinition
    history: History
    indexed: tuple[str, ...]
    summaries: tuple[tuple[CreateSummary, SummaryManager], ...]
    rows: Files = field(default_factory=dict)
    indices: Mapping[str, Files] = field(default_factory=dict)

    def wanted(self, tuples: int) -> Wanted:
        """What the store shall hold when the stream has so many tuples."""
        managers: dict[str, list[SummaryManager]] = {column: [] for column in self.indexed}
        for made, manager in self.summaries:
            managers[made.column].append(manager)
        return Wanted(tuples, self.history.segment, self.history.largest, managers)

    def held(self) -> Held:
        """Which of its files are there."""
        return Held(frozenset(self.rows), {column: frozenset(files) for column, files in self.indices.items()})

    def commit(self, wanted: Wanted, rows: Files, indices: Mapping[str, Files], lake: LakeStream) -> int:
        """Make the stream the store's: these new files beside those that stay.  Returns the store's epoch.

        Raises StoreWriteError: then the store is as it was.
        """
        all_rows = {**self.rows, **rows}
        all_indices = {column: {**self.indices.get(column, {}), **indices.get(column, {})} for column in self.indexed}
        state = {
            "segment": wanted.segment,
            "largest": wanted.largest,
            "tuples": wanted.tuples,
            "rows": [all_rows[run].name for run in wanted.rows_runs()],
            "indices": {
                column: [files[run].name for run in wanted.index_runs()] for column, files in all_indices.items()
            },
        }
        staged = [*rows.values(), *(file for files in indices.values() for file in files.values())]
        history = History.restore(
            self.name, self.definition.schema, state=state, directory=self.directory, staged=staged
        )
        assert lake.until is not None
        return self.live.fill(self.name, self.definition, history, lake.until, offset_of(lake), self.summaries)


def target_of(directory: StoreDirectory, lake: LakeStream, statements: Sequence[str], index: Sequence[str]) -> Target:
    """The stream of the store that has the name of the lake's, checked.  statements: CREATE SUMMARY, of further ones.

    Raises ConfigError for a stream that did not come from this lake, has other columns, or that a standing query
    follows; SqlError, UnknownColumn, KeyTypeError for summaries and indices that cannot be.
    """
    names = Registry()
    keeper = Keeper(directory, memory=None, every=None)
    live = Live(names, keeper)
    layout = lake.layout
    name = layout.stream
    definition = StreamDefinition(layout.schema.remove_metadata(), layout.time)
    if name in names.entries:
        history = _there(live, name, definition, lake, f"{directory.path}: stream '{name}'")
    else:
        history = keeper.history(name, definition.schema)
    summaries = []
    for made in _asked(names, name, definition, statements):
        if made.kind != "countsketch":
            raise ConfigError(
                f"build, summary '{made.name}': needed USING countsketch, which parts of a build count and sum; got "
                f"{made.kind}; DROP SUMMARY it, or build without it and CREATE it over the store"
            )
        if made.parts:
            raise ConfigError(
                f"build, summary '{made.name}': needed a column of the lake, by which tasks count; got {made.column}, "
                "which is computed; open the store and say CREATE SUMMARY there, which counts what it keeps"
            )
        manager = live.summaries.get(made.name)
        summaries.append((made, SummaryManager(made.spec) if manager is None else manager))
    indexed = dict.fromkeys([*history.indexed, layout.key, *index, *(made.column for made, _ in summaries)])
    check_columns(definition.schema, tuple(indexed), where=f"stream '{name}', index")
    for column in indexed:
        key_family(definition.schema.field(column).type, where=f"stream '{name}', index of '{column}'")
    rows, indices = history.stored()
    return Target(directory, live, name, definition, history, tuple(indexed), tuple(summaries), rows, indices)


def _there(live: Live, name: str, definition: StreamDefinition, lake: LakeStream, where: str) -> History:
    """The history of a stream that the store has, which must be as a build left it, or empty."""
    found = live.streams().get(name)
    if found is None:
        raise ConfigError(f"{where}: needed a live stream; got a registered source of that name; DROP STREAM {name}")
    held = live.definitions[name]
    if held != definition or found.history is None:
        raise ConfigError(
            f"{where}: needed the columns {_shown(definition)}, as the lake has them, and no lateness, condition or "
            f"keep; got {_shown(held)}; build into another store, or DROP STREAM {name} first"
        )
    offset = live.offset(name)
    if found.pushed and not (is_of(offset, lake) and offset["tuples"] == found.pushed == found.rows):
        raise ConfigError(
            f"{where}: needed {found.rows:,} rows that were built from this lake; got rows that were pushed by hand or "
            "come from another lake; build into another store"
        )
    for standing, (query, _) in live.standing.named().items():
        if name in {leaf.name for leaf in leaves_of(read_query(query.text, live.names).plan)}:
            raise ConfigError(
                f"{where}: needed a stream without standing queries, which would not see what a build adds; got "
                f"'{standing}'; close it, or push the rows"
            )
    return found.history


def _asked(names: Registry, name: str, definition: StreamDefinition, statements: Sequence[str]) -> list[CreateSummary]:
    """The summaries of the stream: those that the store has, then those asked for, checked."""
    here = names.snapshot()
    if name not in here.entries:
        here.register(name, LiveStream(name, definition.schema, definition.time), time=definition.time, where=None,
                      lateness=None)  # fmt: skip
    for text in statements:
        made = read_statement(text, here)
        if not isinstance(made, CreateSummary):
            raise ConfigError(f"build, summary: needed CREATE SUMMARY ... ON {name} (column) WITH ...; got {text!r}")
        known = here.summaries.get(made.name)
        if known is not None and replace(made, stream=known.stream) == known:
            continue
        run_statement(here, made, Options())
        if here.summaries[made.name].stream != name:
            raise ConfigError(
                f"build, summary '{made.name}': needed one on {name}, which is built; got one on "
                f"{here.summaries[made.name].stream}; leave it out"
            )
    return [made for made in here.summaries.values() if made.stream == name]


def offset_of(lake: LakeStream) -> dict[str, Any]:
    """How much of a lake's stream is in: tuples, and the batches that they came in, by the id of the last."""
    return {"lake": lake.layout.stream, "tuples": lake.tuples, "batches": len(lake.batches),
            "last": lake.batches[-1]["id"]}  # fmt: skip


def is_of(offset: Any, lake: LakeStream) -> bool:
    """Whether an offset is of this lake, now or when it was shorter."""
    if not isinstance(offset, dict) or set(offset) != {"lake", "tuples", "batches", "last"}:
        return False
    batches = offset["batches"]
    return (
        offset["lake"] == lake.layout.stream
        and type(batches) is int
        and 0 < batches <= len(lake.batches)
        and bool(lake.batches[batches - 1]["id"] == offset["last"])
    )


def _shown(definition: StreamDefinition) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in definition.schema) + f" (time {definition.time})"
