"""Statements of drivers: prepared ones, those whose rows wait to be fetched, and how they run."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from nile.answers.result import Result
from nile.expressions.places import Fault, statement_error
from nile.expressions.tokens import plain_signs, tokens_of
from nile.sql.queries import QUERY_WORDS
from nile.summaries.errors import ConfigError, UnknownStream
from nile.summaries.heavy import pa

__all__ = ["Answer", "Held", "Prepared", "Values", "asks", "parameters_of", "values_of"]

_ASKING = frozenset({*QUERY_WORDS, "EXPLAIN", "SHOW", "DESCRIBE"})
Values = Sequence[Any] | dict[str, Any] | None
Kept = TypeVar("Kept")


@dataclass(slots=True)
class Prepared:
    """A statement with places for values.  parameters: their names, of ? their numbers; given: what was bound last."""

    text: str
    parameters: tuple[str, ...]
    given: list[Values] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of one statement, asked once or for each set of values, one after another."""

    results: tuple[Result, ...]

    @property
    def schema(self) -> pa.Schema:
        """Of the first; the others', which only their values tell from it, is the same."""
        return self.results[0].schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, in this order; nothing is found before it is asked for."""
        for result in self.results:
            yield from (batch.cast(self.schema) if batch.schema != self.schema else batch for batch in result.batches())


class Held(Generic[Kept]):
    """What drivers may come back for, by a name that nobody guesses; the one that lay longest goes where room ends.

    most: how many are held.
    """

    def __init__(self, what: str, most: int) -> None:
        self._what, self._most = what, most
        self._held: OrderedDict[bytes, Kept] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def keep(self, one: Kept) -> bytes:
        """The name of it from now on."""
        name = secrets.token_bytes(16)
        with self._lock:
            self._held[name] = one
            while len(self._held) > self._most:
                self._held.popitem(last=False)
        return name

    def get(self, name: Any) -> Kept:
        """What has this name.  Raises UnknownStream."""
        with self._lock:
            if name in self._held:
                self._held.move_to_end(name)
                return self._held[name]
        raise UnknownStream(f"Flight: needed {self._what} that is here; got one that ended; ask again")

    def pop(self, name: Any) -> Kept | None:
        """The same, for the last time; None where it is not here any more."""
        with self._lock:
            return self._held.pop(name, None)


def asks(text: str) -> bool:
    """Whether a statement only looks: SELECT, EXPLAIN, SHOW or DESCRIBE."""
    return next((token.word in _ASKING for token in _tokens(text)), False)


def parameters_of(text: str) -> tuple[str, ...]:
    """The names of a statement's parameters in order: 1, 2, ... for ? and for $1, name for $name.  Raises SqlError."""
    tokens = _tokens(text)
    names: dict[str, None] = {}
    marks = 0
    for at, token in enumerate(tokens):
        if token.word == "?":
            marks += 1
            names[str(marks)] = None
        elif token.word == "$" and at + 1 < len(tokens):
            names[tokens[at + 1].text] = None
    if all(map(str.isdecimal, names)):
        return tuple(sorted(names, key=int))
    return tuple(names)


def values_of(batch: pa.RecordBatch, parameters: tuple[str, ...]) -> Iterator[Values]:
    """What each row of bound values gives a statement: $name by the columns' names, else in their order.

    Raises ConfigError.
    """
    names = batch.schema.names
    if len(names) != len(parameters):
        raise ConfigError(
            f"Flight: needed {len(parameters)} values, as many as the statement has parameters; got {len(names)} "
            "columns; bind one column for each"
        )
    named = not all(map(str.isdecimal, parameters))
    if named and set(names) != set(parameters):
        names = list(parameters)
    columns = [column.to_pylist() for column in batch.columns]
    for row in zip(*columns, strict=True):
        yield dict(zip(names, row, strict=True)) if named else row


def answered(
    sql: Callable[[str, Values], Result], text: str, given: list[Values] | None, most: int = 100_000
) -> Answer:
    """A statement's answer: of one that only looks unread, any other is carried out now, once for each set of values.

    most: how many sets of values there may be.  Raises what the statement raises; sets before that one have been
    carried out.
    """
    sets = [None] if given is None else given
    if len(sets) > most:
        raise ConfigError(f"Flight: needed at most {most:,} sets of values; got {len(sets):,}; push rows instead")
    if not sets:
        raise ConfigError("Flight: needed a set of values; got none; bind a row")
    return Answer(tuple(sql(text, values) for values in sets))


def _tokens(text: str) -> list[Any]:
    try:
        return tokens_of(plain_signs(text))
    except Fault as fault:
        raise statement_error(fault, text) from None
