"""Constraints declared on live streams: measured as tuples arrive, passed to the joins that use them, kept.

Source: STREAM (CIDR 2003), section 4.1, and the bulletin (2003), section 5: a monitor of what streams are like.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nile.exact.plan.constraints import StreamConstraint
from nile.exact.state.expire import NEVER
from nile.exact.state.held import Held
from nile.exact.state.words import Encoder
from nile.execution.envelopes import content, flat
from nile.execution.exact.promised import Known
from nile.runtime.delays import Delays
from nile.runtime.kept_constraints import Disorder, Doubles, Gaps, Punctuated
from nile.sql.statement_text import statement_text
from nile.sql.statements import Declare
from nile.streams.live import LiveStream
from nile.streams.manager import TupleBatch
from nile.summaries.envelope import Envelope
from nile.summaries.errors import ConfigError, SqlError, UnknownStream
from nile.summaries.hashing import key_words
from nile.summaries.heavy import pa
from nile.summaries.key_types import key_family

__all__ = ["Constraints", "Declared", "said_of"]

Array = np.ndarray[Any, Any]
_Measure = Disorder | Gaps | Doubles | Delays | Punctuated
_MEASURES: Mapping[str, Callable[[], _Measure]] = {
    "ordered": Disorder, "clustered": Gaps, "many one": Doubles, "referential": Delays, "punctuated": Punctuated,
}  # fmt: skip
_ENDLESS = ("many one", "punctuated")
"""Kinds without a k."""
_MIX = np.int64(-7046029254386353131)  # odd: keys of several columns in an order


def said_of(statement: Declare) -> str:
    """What a constraint is known by: all but its k and what is done where it is broken."""
    return statement_text(replace(statement, drop=True)).removeprefix("DROP CONSTRAINT ")


@dataclass(eq=False)
class Declared:
    """One constraint.  streams: those that it is about, its own first; counted: violations that have been handled."""

    statement: Declare
    constraint: StreamConstraint
    measure: _Measure
    streams: tuple[LiveStream, ...]
    counted: int = 0

    @property
    def proposal(self) -> str | None:
        """The statement that says what has held so far; None: there is none that is worth saying."""
        statement, measured = self.statement, self.measure.measured
        if measured is None or not self.measure.tuples:
            return None
        within = None if statement.kind in _ENDLESS else measured
        return statement_text(replace(statement, within=within))

    def come(self, stream: LiveStream, batch: TupleBatch) -> None:
        """Tuples of one of its streams."""
        said, within, rows = self.statement, self.constraint.within, batch.carried
        assert rows is not None
        if isinstance(self.measure, Delays):
            parents = stream is self.streams[1]
            keys, whole = _keys(rows, said.parent_columns if parents else said.columns)
            self.measure.come(parents, batch.ts[whole], keys)
        elif isinstance(self.measure, Punctuated):
            keys, whole = _keys(rows, said.columns)
            self.measure.come(batch.ts[whole], keys)
        elif said.kind == "many one":
            if stream is self.streams[1]:
                self.measure.push(_keys(rows, said.parent_columns)[0], within)
        elif stream is self.streams[0]:
            values = _values(rows, said.columns[0]) if said.kind == "ordered" else _keys(rows, said.columns)[0]
            self.measure.push(values, within)

    def say(self, rows: pa.RecordBatch) -> None:
        """No tuple of these values comes after those pushed so far."""
        assert isinstance(self.measure, Punctuated)
        self.measure.say(self.streams[0].latest, _keys(rows, self.statement.columns)[0])

    def settle(self) -> None:
        """Go on to the instant that all its streams have passed, and do what is to be done where it is broken."""
        if isinstance(self.measure, Delays):
            passed = [NEVER if each.closed else each.passed for each in self.streams]
            if all(each is not None for each in passed):
                self.measure.passed(min(each for each in passed if each is not None) - 1, self.constraint.within)
        new, self.counted = self.measure.violations - self.counted, self.measure.violations
        if new and (self.statement.kind in _ENDLESS or self.constraint.within is not None):
            self._broken(new)

    def _broken(self, new: int) -> None:
        measured, within = self.measure.measured, self.constraint.within
        if self.statement.violation == "relax":
            self.constraint.within = measured
        elif self.statement.violation == "fail":
            came = f"k of {'more' if measured is None else measured}"
            needed = f"k of {within} at most"
            if within is None:
                needed, came = "one parent of a key", "another"
            if self.statement.kind == "punctuated":
                needed, came = "no tuple of values of which no more were to come", "some"
            self.constraint.broken = (
                f"{said_of(self.statement)}: needed {needed}; got {came}: {new:,} tuples against it; DECLARE it ON "
                "VIOLATION RELAX or COUNT, or with the k that nile_constraints proposes, and ask the query again"
            )


class Constraints:
    """All that are declared.  Used under the lock of `Live`.  streams: the live ones by name."""

    def __init__(self, streams: Callable[[], Mapping[str, LiveStream]]) -> None:
        self._streams = streams
        self._declared: dict[str, Declared] = {}

    @property
    def declared(self) -> Mapping[str, Declared]:
        """All by what they say."""
        return self._declared

    def known(self) -> Known:
        """What joins may go by."""
        return {text: (each.statement, each.constraint) for text, each in self._declared.items()}

    def declare(self, statement: Declare) -> str:
        """One more, or another k for one that is there, which holds from here on.  Raises ConfigError, SqlError."""
        text = said_of(statement)
        names = [statement.stream, *([] if statement.parent is None else [statement.parent])]
        for name in names:
            if name not in self._streams():
                raise ConfigError(
                    f"DECLARE {text}: needed live streams, which joins follow as they come; got '{name}', which has a "
                    "source; make one with db.stream()"
                )
        streams = tuple(self._streams()[name] for name in names)
        _check_types(statement, [each.schema for each in streams])
        if (held := self._declared.get(text)) is not None:
            held.statement = statement
            held.constraint.within, held.constraint.broken = statement.within, None
            return text
        constraint = StreamConstraint(statement.kind, statement.within)
        self._declared[text] = Declared(statement, constraint, _MEASURES[statement.kind](), streams)
        return text

    def drop(self, statement: Declare, users: Sequence[str]) -> None:
        """Forget one that no query goes by.  users: names of those that do.  Raises SqlError, UnknownStream."""
        text = said_of(statement)
        if text not in self._declared:
            known = "; ".join(self._declared) or "none"
            raise UnknownStream(f"DROP CONSTRAINT {text}: needed one that is declared; got another; there are {known}")
        if users:
            raise SqlError(
                f"DROP CONSTRAINT {text}: needed one that no standing query relies on; got {', '.join(users)}; "
                "close these first"
            )
        del self._declared[text]

    def snapshot(self) -> Callable[[], None]:
        """What makes it all again as it is now."""
        held = [(text, each, each.statement, each.constraint.within, each.constraint.broken)
                for text, each in self._declared.items()]  # fmt: skip

        def go_back() -> None:
            self._declared = {text: each for text, each, *_ in held}
            for _, each, statement, within, broken in held:
                each.statement, each.constraint.within, each.constraint.broken = statement, within, broken

        return go_back

    def punctuated(self, stream: LiveStream, columns: tuple[str, ...]) -> Declared:
        """What declares that a stream says of which values of these columns no more come.  Raises ConfigError."""
        for each in self._declared.values():
            if each.streams[0] is stream and each.statement.kind == "punctuated" and each.statement.columns == columns:
                return each
        said = said_of(Declare("punctuated", stream.name, columns))
        raise ConfigError(
            f"PUNCTUATE {stream.name}: needed columns that are declared to be said, in that order; got "
            f"{', '.join(columns)}; DECLARE {said} before the queries that are to go by it"
        )

    def follow(self) -> None:
        """Forget those of streams that are there no more."""
        live = self._streams()
        for text, each in list(self._declared.items()):
            if any(live.get(stream.name) is not stream for stream in each.streams):
                del self._declared[text]

    def arrived(self, stream: LiveStream, name: str, batch: TupleBatch) -> None:
        """Tuples of a stream whose turn has come, before anybody works on them."""
        del name
        for each in self._declared.values():
            if any(one is stream for one in each.streams):
                each.come(stream, batch)
                each.settle()

    def progress(self) -> None:
        """How far streams have come has changed."""
        for each in self._declared.values():
            each.settle()

    def staged(self) -> Iterable[tuple[str, str, tuple[Mapping[str, Any], Mapping[str, Any]]]]:
        """(what it says, its statement with the k that it has now, what is measured) of each, for a store."""
        for text, each in self._declared.items():
            statement = replace(each.statement, within=each.constraint.within)
            broken, counted = each.constraint.broken or "", each.counted
            state = {"broken": broken, "counted": counted, "measure": each.measure.capture()}
            yield text, statement_text(statement), flat(state)

    def restore(self, statement: Declare, envelope: Envelope) -> None:
        """Put one back.  Raises EnvelopeError."""
        made = self._declared[self.declare(statement)]
        held = Held(content(envelope), "state of a constraint")
        made.constraint.broken = held.text("broken") or None
        made.counted = held.integer("counted", 0)
        made.measure.restore(held.part("measure"))
        held.end()


def _keys(rows: pa.RecordBatch, columns: Sequence[str]) -> tuple[Array, Array]:
    """(the keys of rows without a null, one word each, which rows these are)."""
    keys, whole = np.zeros(rows.num_rows, np.int64), np.ones(rows.num_rows, bool)
    for name in columns:
        words, valid = key_words(rows.column(rows.schema.get_field_index(name)), where=name)
        with np.errstate(over="ignore"):
            keys = words if len(columns) == 1 else (keys ^ (keys >> 29)) * _MIX + words * (_MIX - 2)
        if valid.shape[0]:
            whole &= valid
    return (keys, whole) if whole.all() else (keys[whole], whole)


def _values(rows: pa.RecordBatch, name: str) -> Array:
    """What an order goes by, nulls left out."""
    column = rows.column(rows.schema.get_field_index(name)).drop_null()
    return np.ascontiguousarray(Encoder([column.type], exact=True).encode([column])[:, 0])


def _check_types(statement: Declare, schemas: Sequence[pa.Schema]) -> None:
    """Raises ConfigError, KeyTypeError."""
    text = f"DECLARE {said_of(statement)}"
    types = [schemas[0].field(name).type for name in statement.columns]
    if statement.kind == "ordered":
        kind = types[0]
        whole = pa.types.is_integer(kind) and not pa.types.is_uint64(kind)
        if not (whole or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind))):
            raise ConfigError(f"{text}: needed a column of whole numbers or times; got {kind}; name another")
    families = [key_family(kind, where=text) for kind in types]
    if statement.parent is not None:
        theirs = [schemas[1].field(name).type for name in statement.parent_columns]
        for kind, other, family in zip(types, theirs, families, strict=True):
            if key_family(other, where=text) != family:
                raise ConfigError(f"{text}: needed columns that can be equal; got {kind} and {other}; name others")
