"""What makes a database outlive its process: checkpoints of live streams and standing queries, written and read.

    push -> is a checkpoint due? -> tuples taken -> ...          checkpoint: capture -> stage files -> commit

State is exactly-once: tuples, sketches, windows and the source's offset are committed together, so a source that is
replayed from `offset` after a crash is counted once.  Outputs are at-least-once: what was emitted after the last
checkpoint comes again, with the same numbers.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nile.base.machine import memory_bytes
from nile.durable.arrivals import Arrivals
from nile.durable.pieces import Pieces, Writing
from nile.execution.definitions import (
    QueryDefinition,
    SourceDefinition,
    StreamDefinition,
    integer,
    refuse,
    section,
    text,
)
from nile.execution.definitions import names as named
from nile.execution.envelopes import content, flat
from nile.execution.live.constraints import said_of
from nile.execution.live.unread import Filed, read_filed
from nile.execution.options import Options
from nile.execution.statement.builder import read_query
from nile.pyramid.disk.directory import StoreDirectory
from nile.pyramid.disk.manifest import StoredFile
from nile.pyramid.grid.manager_state import KIND as MANAGER
from nile.pyramid.grid.manager_state import manager_content, read_manager
from nile.pyramid.history.history import History
from nile.sql.plan import leaves_of
from nile.sql.reading_statements import read_statement
from nile.sql.statement_text import statement_text
from nile.sql.statements import CreateSummary, CreateView, Declare
from nile.summaries.errors import ConfigError, NileError, StoreCorrupt, StoreTooNew
from nile.summaries.hashing import PUBLIC, KeyHasher
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from nile.execution.live.live import Live
    from nile.execution.registry import Registry

__all__ = ["Keeper"]

FORMAT = 7
"""Of what a manifest's state says; a store of a newer one is refused.  7: sinks send; 6: streams read
connectors; 5: arrays lie in pieces; 4: constraints are declared; 3: queries fill streams, or relations change; 2:
outputs wait in files of their own; without any, 1 is written."""

_UNREAD_SHARE = 4
"""Outputs that nobody reads may take this part of what kept rows may take, all together, before they go to files."""
_SEALED = 1 << 20
"""Outputs of more bytes get a file of their own at a checkpoint; those after it name it, and do not write it again."""

_STREAM, _QUERY, _CONSTRAINT = "live stream", "standing query", "constraint"


class Keeper:
    """The store of one database.

    memory: anonymous bytes that the streams' histories together may hold, None for no limit; every: seconds between
    checkpoints, None: only when asked; hasher: of all keys, now and ever after.  Not safe for threads: it is called
    under the lock of `Live`.
    """

    def __init__(
        self,
        directory: StoreDirectory,
        *,
        memory: int | None,
        every: float | None,
        hasher: KeyHasher = PUBLIC,
    ) -> None:
        self.directory = directory
        self.arrivals = Arrivals(directory)
        self.memory = memory
        self.every = every
        self.hasher = hasher
        self._last = time.monotonic()
        self.seconds = 0.0
        """What checkpoints have taken so far, s."""
        self._absent: dict[str, SourceDefinition] = {}
        self._pieces = Pieces(directory)
        self.restoring = False

    @property
    def where(self) -> str:
        """The store's path."""
        return str(self.directory.path)

    @property
    def due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return self.every is not None and time.monotonic() - self._last >= self.every

    def history(self, name: str, schema: pa.Schema) -> History:
        """A new history that moves to this store's files when memory is short."""
        return History(name, schema, directory=self.directory, memory=self.memory, hasher=self.hasher)

    def make_room(self, live: Live, names: Registry) -> None:
        """Before rows are taken: move what is beyond the memory limit to files, and write a checkpoint if one is due.

        Raises StoreWriteError: then nothing has changed, and rows should not be taken until it succeeds.  Raises
        StoreReadOnly.
        """
        self.directory.check_writable()
        if self.memory is not None:
            held = [stream.history for stream in live.streams().values() if stream.history is not None]
            for history in held:
                history.limit = self.memory // len(held)
                if history.memory > history.limit:
                    history.settle()
        live.standing.settle(self.directory, (memory_bytes() if self.memory is None else self.memory) // _UNREAD_SHARE)
        if self.due:
            self.checkpoint(live, names)

    def check(self, live: Live, names: Registry) -> None:
        """That every standing query with a name could be opened again.  Raises ConfigError."""
        known = {*live.streams(), *names.sources(), *self._absent}
        for name, (definition, _) in live.standing.named().items():
            try:
                leaves = leaves_of(read_query(definition.text, names).plan)
                gone = [leaf.name for leaf in leaves if leaf.name not in known]
                why = f"'{gone[0]}' is no live stream and no file" if gone else None
            except NileError as error:
                why = str(error)
            if why is not None:
                raise ConfigError(
                    f"standing query {name!r}: needed what it reads, for the store has to open it again; got a change "
                    f"after which {why}; close the query first: db.subscription({name!r}).close()"
                )

    def remember(self, live: Live, names: Registry) -> None:
        """A checkpoint, if this store is written at all."""
        if not (self.restoring or self.directory.read_only):
            self.checkpoint(live, names)

    def checkpoint(self, live: Live, names: Registry) -> int:
        """Make everything as it is now the store's newest generation; its epoch.

        Raises StoreWriteError: then the generation before is in force, nothing in memory has changed, and a later
        call may succeed.  Cost: rows since the last checkpoint, outputs that
        nobody has read since, and what is new of all other state are written; that state is copied and hashed.
        """
        begun = time.monotonic()
        made: list[StoredFile] = []
        try:
            with self._pieces.writing() as writing:
                epoch = self._write(live, names, writing, made)
        except BaseException:
            self.directory.discard(made)
            raise
        self.directory.discard([file for one in live.standing.all() for file in one.read_through()])
        self._last = time.monotonic()
        self.seconds += self._last - begun
        return epoch

    def _write(self, live: Live, names: Registry, writing: Writing, made: list[StoredFile]) -> int:
        """Commit all there is; the epoch.  made: files that are no use where this raises."""
        keep: list[StoredFile] = []
        state: dict[str, Any] = {"format": 1, "streams": {}, "sources": {}, "summaries": {}, "queries": {}}
        if self.hasher.secret:
            state["hashing"] = self.hasher.check

        places = {name: at for at, name in enumerate(names.entries)}

        def staged(role: str, kind: str, content: tuple[Mapping[str, Any], Mapping[str, Any]]) -> str:
            made.append(self.directory.stage_envelope(role, *writing.envelope(kind, *content)))
            return made[-1].name

        for name, stream in live.streams().items():
            history: dict[str, Any] | None = None
            files: list[StoredFile] = []
            if stream.history is not None:
                stream.history.settle()
                history, files = stream.history.stage(self.directory)
            keep += files
            if live.definitions[name].relation or live.definitions[name].reads is not None:
                state["format"] = max(state["format"], 3 if live.definitions[name].relation else 6)
            state["streams"][name] = {
                "at": places[name],
                "definition": live.definitions[name].as_json(),
                "offset": live.offsets.get(name),
                "tuples": stream.rows,
                "pushed": stream.accounting.tuples_in,
                "history": history,
                "file": staged("state-stream", _STREAM, stream.content()),
            }
        for name, source in {**self._absent, **names.sources()}.items():
            if name not in state["streams"]:
                state["sources"][name] = {"at": places.get(name, len(places)), **source.as_json()}
        for at, (name, summary) in enumerate(names.summaries.items()):
            manager = live.summaries.get(name)
            state["summaries"][name] = {
                "at": at,
                "text": statement_text(summary),
                "file": None if manager is None else staged("state-summary", MANAGER, manager_content(manager)),
            }
        for at, (name, view) in enumerate(names.views.items()):
            state.setdefault("views", {})[name] = {"at": at, "text": view.text, "columns": list(view.columns)}
        for at, (said, declared, measured) in enumerate(live.constraints.staged()):
            file = staged("state-constraint", _CONSTRAINT, measured)
            state.setdefault("constraints", {})[said] = {"at": at, "text": declared, "file": file}
            state["format"] = max(state["format"], 4)
        live.standing.settle_all()
        for at, (name, (definition, standing)) in enumerate(live.standing.named().items()):
            if gone := set(standing.streams) - set(state["streams"]):
                raise ConfigError(
                    f"standing query {name!r}: needed its live streams, to be written with them; got none of name "
                    f"{', '.join(map(repr, gone))}; close the query"
                )
            standing.seal(self.directory, _SEALED)
            filed = standing.filed()
            if standing.epoch is None:
                standing.epoch = self.directory.epoch + 1
            state["queries"][name] = {
                "at": at,
                "epoch": standing.epoch,
                **definition.as_json(),
                "outputs": standing.outputs,
                "unread": standing.unread,
                "file": staged("state-query", _QUERY, flat(standing.capture())),
            }
            if definition.into is not None or definition.runs is not None:
                state["format"] = max(state["format"], 3)
            if definition.sends is not None:
                state["format"] = FORMAT
            if filed:
                state["format"] = max(state["format"], 2)
                state["queries"][name]["filed"] = [[each.file.name, each.skip] for each in filed]
                keep += [each.file for each in filed]
        if (pack := writing.finish()) is not None:
            made.append(pack)
        if writing.packs:
            state["format"] = max(state["format"], 5)
            state["pieces"] = [file.name for file in writing.packs.values()]
            keep += [file for file in writing.packs.values() if file is not pack]
        epoch = self.directory.commit(state, [*keep, *made])
        self._pieces.committed(writing)
        return epoch

    def restore(self, live: Live, names: Registry) -> None:
        """Put back what the store holds.  Sources whose files are gone are told by a warning and stay remembered.

        Raises StoreTooNew, StoreCorrupt.
        """
        state = self.directory.state
        if not state:
            return
        known = state.get("format")
        if type(known) is not int or known < 1:
            refuse(self.where, "a format number", known)
        if known > FORMAT:
            raise StoreTooNew(
                f"{self.where}: needed a store of format {FORMAT} or older; got {known}; upgrade Nile to open it"
            )
        self._check_hashing(state.get("hashing"))
        self.restoring = True
        try:
            self._restore(dict(state), live, names)
        except NileError as error:
            if isinstance(error, StoreCorrupt):
                raise
            raise StoreCorrupt(
                f"{self.where}: needed what this version of Nile wrote; got: {error}; "
                f"run `nile store check {self.where}`"
            ) from error
        finally:
            self.restoring = False

    def _check_hashing(self, kept: object) -> None:
        """That keys are hashed as the store's were.  Raises ConfigError."""
        mine = self.hasher.check if self.hasher.secret else None
        if mine == kept:
            return
        if kept is None:
            told = "none, since this store hashes keys without one; got one; leave it out, or make a new store with it"
        else:
            got = "none" if mine is None else "another"
            told = f"the secret that this store was made with; got {got}; without it the store cannot be read"
        raise ConfigError(f"{self.where}, hash_secret: needed {told}")

    def _restore(self, state: dict[str, Any], live: Live, names: Registry) -> None:
        self._pieces.opened([self._file(name) for name in self._listed(state, "pieces")])
        entries = [*self._ordered(state, "sources"), *self._ordered(state, "streams")]
        for _, name, value in sorted(entries, key=lambda entry: entry[0]):
            if "definition" in value:
                self._stream(name, value, live)
            else:
                self._source(name, SourceDefinition.from_json(value, self.where), names)
        for _, name, value in self._ordered(state, "summaries"):
            made = read_statement(text(value, "text", self.where), names)
            if not isinstance(made, CreateSummary) or made.name != name:
                refuse(self.where, f"CREATE SUMMARY {name}", value)
            names.keep_summary(made)
            if value.get("file") is not None and made.stream in live.streams():
                manager = read_manager(self._envelope(value, MANAGER), secret=self.hasher.secret)
                live.summaries.adopt(made, live.streams()[made.stream], manager)
        live.follow_summaries()
        for _, name, value in self._ordered(state, "views") if "views" in state else ():
            columns = named(value, "columns", self.where)
            names.keep_view(CreateView(name, text(value, "text", self.where), columns))
        for _, said, value in self._ordered(state, "constraints") if "constraints" in state else ():
            declared = read_statement(text(value, "text", self.where), names)
            if not isinstance(declared, Declare) or said_of(declared) != said:
                refuse(self.where, f"DECLARE {said}", value)
            live.constraints.restore(declared, self._envelope(value, _CONSTRAINT))
        for _, name, value in self._ordered(state, "queries"):
            wanted = QueryDefinition.from_json(value, self.where)
            runs = wanted if wanted.runs is None else wanted.runs
            try:
                query, options = read_query(runs.text, names), Options.of(dict(runs.options()))
            except NileError as error:
                raise StoreCorrupt(
                    f"{self.where}: needed what standing query {name!r} reads; got: {error}; bring back the file that "
                    f"it names, or drop the query: `nile store repair {self.where}`"
                ) from error
            state = content(self._envelope(value, _QUERY))
            standing = live.subscribe(query, options, None, name=name, state=state, into=wanted.into or wanted.sends)
            live.standing.redefine(name, wanted)
            standing.epoch = integer(value, "epoch", self.where)
            standing.refill(self._filed(value, standing.schema))
        self._pieces.read()

    def _listed(self, value: dict[str, Any], name: str) -> list[Any]:
        """A list that need not be there."""
        found = value.get(name, [])
        return found if isinstance(found, list) else refuse(self.where, f"a list of {name}", found)

    def _file(self, name: object) -> StoredFile:
        file = self.directory.files().get(name) if isinstance(name, str) else None
        return refuse(self.where, "a file of the manifest", name) if file is None else file

    def _filed(self, value: dict[str, Any], schema: pa.Schema) -> list[Filed]:
        """The outputs of a standing query that wait in files of their own."""
        found = []
        for each in self._listed(value, "filed"):
            if not isinstance(each, list) or len(each) != 2 or type(each[1]) is not int:
                refuse(self.where, "a file and a number of rows", each)
            found.append(read_filed(self.directory, self._file(each[0]), schema, each[1]))
        return found

    def _ordered(self, state: dict[str, Any], name: str) -> list[tuple[int, str, dict[str, Any]]]:
        """(place, name, value) of what stands in a section, in the order in which it was made."""
        found = section(state, name, self.where)
        return sorted(
            (integer(section(found, each, self.where), "at", self.where) or 0, each, found[each]) for each in found
        )

    def _stream(self, name: str, value: dict[str, Any], live: Live) -> None:
        definition = StreamDefinition.from_json(section(value, "definition", self.where), self.where)
        history = None
        if value.get("history") is not None:
            history = History.restore(
                name,
                definition.schema,
                state=section(value, "history", self.where),
                directory=self.directory,
                memory=self.memory,
                hasher=self.hasher,
            )
        live.adopt(name, definition, history).go_on_from(self._envelope(value, _STREAM))
        if value.get("offset") is not None:
            live.offsets[name] = value["offset"]

    def _source(self, name: str, source: SourceDefinition, names: Registry) -> None:
        late = None if source.lateness is None else f"{source.lateness} ns"
        try:
            names.register(name, source.path, time=source.time, where=source.where, lateness=late)
        except (NileError, OSError) as error:
            self._absent[name] = source
            warnings.warn(f"{self.where}: source '{name}' could not be opened again: {error}", stacklevel=4)

    def _envelope(self, value: dict[str, Any], kind: str) -> Any:
        name = text(value, "file", self.where)
        envelope = self._pieces.whole(self.directory.read_envelope(self._file(name)))
        if envelope.kind != kind:
            refuse(os.path.join(self.where, name), f"an envelope of kind {kind!r}", envelope.kind)
        return envelope

    def close(self) -> None:
        """Let the store go."""
        self.directory.close()
