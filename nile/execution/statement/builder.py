"""Queries built step by step, as powerful as SQL: the builder writes the statement, the binder reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal

from nile.answers.result import Result
from nile.base.budgets import GivenBudget, read_budget
from nile.base.durations import format_duration, parse_duration
from nile.base.names import check_name, names_given
from nile.execution.options import Options
from nile.execution.statement.engine import Engine
from nile.execution.statement.statements import run_query
from nile.preferences.budget import Budget
from nile.preferences.fade import Fade
from nile.preferences.preference import preference_number
from nile.sql.catalog import Catalog
from nile.sql.expression_text import budget_text, identifier, text_literal
from nile.sql.plan import Query
from nile.sql.reading_statements import read_statement
from nile.sql.statements import Select
from nile.summaries.errors import ConfigError

__all__ = ["QueryBuilder", "read_query"]

Duration = str | float | timedelta
Params = Sequence[Any] | Mapping[str, Any] | None
Kind = Literal["asc", "desc", "weighted"]

_EMITS = ("snapshot", "changes", "append", "on window close")


def read_query(text: str, catalog: Catalog, params: Params = None) -> Query:
    """The bound query of a SELECT.  Raises SqlError, and ConfigError for another statement."""
    statement = read_statement(text, catalog, params=params)
    if not isinstance(statement, Select):
        raise ConfigError(f"query: needed a SELECT; got {type(statement).__name__}; give it to sql()")
    return statement.query


@dataclass(frozen=True, slots=True)
class QueryBuilder:
    """A query under construction.  Made by `Database.query`; each method returns a modified copy, nothing is read.

    `sql()` shows the statement, `plan()` the bound query, `run()` returns a Result.  Conditions and expressions are
    SQL text.

    >>> import nile
    >>> db = nile.connect()
    >>> _ = db.register("sales", {"ts": [0.0, 1.0, 5.0], "item": ["tea", "tea", "cup"]}, time="ts")
    >>> counts = db.query("sales").group_by("item").agg(n="count(*)").having("count(*) > 1")
    >>> counts.sql()
    'SELECT item, count(*) AS n FROM sales GROUP BY item HAVING count(*) > 1'
    >>> counts.run().fetchall()
    [('tea', 2)]
    """

    engine: Engine = field(repr=False)
    sources: tuple[str, ...]
    items: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    aggregates: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    is_distinct: bool = False
    operations: tuple[tuple[str, QueryBuilder], ...] = ()
    ordering: tuple[str, ...] = ()
    clauses: tuple[tuple[str, str], ...] = ()
    limited: str = ""
    given: Budget | None = None

    def __repr__(self) -> str:
        return f"<QueryBuilder: {self.sql()}>"

    @classmethod
    def over(cls, engine: Engine, source: str, alias: str | None) -> QueryBuilder:
        """A query of everything in one stream or relation."""
        return cls(engine, (_source(source, alias),))

    def filter(self, condition: str) -> QueryBuilder:
        """Same as `where`, under the name that DataFrames use."""
        return self.where(condition)

    def where(self, condition: str) -> QueryBuilder:
        """WHERE condition; several: all of them."""
        return replace(self, conditions=(*self.conditions, condition))

    def join(
        self, source: str, *, on: str | Sequence[str] | None = None, alias: str | None = None, where: str | None = None
    ) -> QueryBuilder:
        """A further stream or relation; on: a column of that name on both sides (or several); where: a condition."""
        columns = names_given(on, where="query, join on")
        made = self
        if columns:
            left, right = self._name(0), alias or source
            equal = [f"{identifier(left)}.{identifier(c)} = {identifier(right)}.{identifier(c)}" for c in columns]
            made = replace(made, conditions=(*made.conditions, *equal))
        if where is not None:
            made = made.where(where)
        return replace(made, sources=(*made.sources, _source(source, alias)))

    def _name(self, at: int) -> str:
        words = self.sources[at].split(" AS ")
        return words[-1].split(" ROWS ")[0].strip('"')

    def window(self, length: Duration | None = None, /, **pairs: Duration) -> QueryBuilder:
        """WINDOW length for every stream; or a window for each pair of aliases: window(a_b="1 hour")."""
        return self._windows("WINDOW", length, pairs)

    def dwindow(self, **pairs: Duration) -> QueryBuilder:
        """DWINDOW: windows along a path of aliases, one way or the other: dwindow(a_b=60, b_c=30)."""
        return self._windows("DWINDOW", None, pairs)

    def _windows(self, word: str, length: Duration | None, pairs: Mapping[str, Duration]) -> QueryBuilder:
        if (length is None) == (not pairs):
            raise ConfigError(f"{word.lower()}: needed one length, or lengths of pairs; got both or none; give one")
        if length is not None:
            return self._clause(word, _duration(length, word.lower(), least=0))
        names = [self._name(at) for at in range(len(self.sources))]
        parts = []
        for pair, given in pairs.items():
            found = [(a, b) for a in names for b in names if f"{a}_{b}" == pair]
            if len(found) != 1:
                raise ConfigError(
                    f"{word.lower()}: needed two of {', '.join(names)} with an underscore between; got {pair!r}; write "
                    f"{names[0]}_{names[-1]}='1 hour'"
                )
            a, b = found[0]
            parts.append(f"({identifier(a)}, {identifier(b)}) = {_duration(given, word.lower(), least=0)}")
        return self._clause(word, " AND ".join(parts))

    def _clause(self, word: str, text: str) -> QueryBuilder:
        kept = tuple(each for each in self.clauses if each[0] != word)
        return replace(self, clauses=(*kept, (word, text)))

    def select(self, *items: str, **named: str) -> QueryBuilder:
        """SELECT items (SQL text), and named ones: select("a.item_id", value="a.price * 2")."""
        texts = (f"{text} AS {identifier(name)}" for name, text in named.items())
        return replace(self, items=(*self.items, *items, *texts))

    def distinct(self) -> QueryBuilder:
        """SELECT DISTINCT."""
        return replace(self, is_distinct=True)

    def group_by(self, *keys: str) -> QueryBuilder:
        """GROUP BY keys; they come first in the output unless `select` says otherwise."""
        return replace(self, keys=(*self.keys, *keys))

    def agg(self, **aggregates: str) -> QueryBuilder:
        """Aggregates by name: agg(n="count(*)", revenue="sum(price * quantity)")."""
        texts = tuple(f"{text} AS {identifier(name)}" for name, text in aggregates.items())
        return replace(self, aggregates=(*self.aggregates, *texts))

    def having(self, condition: str) -> QueryBuilder:
        """HAVING condition; several: all of them."""
        return replace(self, kept=(*self.kept, condition))

    def union(self, other: QueryBuilder, *, all: bool = False) -> QueryBuilder:  # noqa: A002
        """UNION [ALL]."""
        return self._operation("UNION", other, all)

    def intersect(self, other: QueryBuilder, *, all: bool = False) -> QueryBuilder:  # noqa: A002
        """INTERSECT [ALL]."""
        return self._operation("INTERSECT", other, all)

    def except_(self, other: QueryBuilder, *, all: bool = False) -> QueryBuilder:  # noqa: A002
        """EXCEPT [ALL]."""
        return self._operation("EXCEPT", other, all)

    def _operation(self, word: str, other: QueryBuilder, every: bool) -> QueryBuilder:
        if not isinstance(other, QueryBuilder):
            raise ConfigError(
                f"{word.lower()}: needed another query of db.query(...); got {type(other).__name__}; build it likewise"
            )
        if other.clauses or other.ordering or other.limited or other.given:
            raise ConfigError(
                f"{word.lower()}: needed windows, preferences, order and limits on the whole; got one on the right "
                "side; say it after the operation"
            )
        return replace(self, operations=(*self.operations, (word + (" ALL" if every else ""), other)))

    def order_by(self, *keys: str) -> QueryBuilder:
        """ORDER BY keys ("n DESC"): of snapshots."""
        return replace(self, ordering=(*self.ordering, *keys))

    def limit(self, count: int, offset: int = 0) -> QueryBuilder:
        """LIMIT count [OFFSET offset]: of snapshots.  Raises ConfigError."""
        for word, given in (("limit", count), ("limit, offset", offset)):
            if isinstance(given, bool) or not isinstance(given, int) or given < 0:
                raise ConfigError(f"{word}: needed a number of rows; got {given!r}; write limit(10, offset=20)")
        return replace(self, limited=f"LIMIT {count}" + (f" OFFSET {offset}" if offset else ""))

    def prefer(self, kind: Kind, *terms: str) -> QueryBuilder:
        """WITH PREFERENCE kind term, ...: columns or SUMMARY.Estimate.Count(column).  Raises ConfigError."""
        preference_number(kind)
        return self._clause("WITH PREFERENCE", " ".join([kind, ", ".join(terms)]).strip())

    def fade(self, factor: float) -> QueryBuilder:
        """FADE FACTOR.  Raises ConfigError."""
        return self._clause("FADE FACTOR", repr(float(Fade(factor).factor)))

    def emit(self, how: str) -> QueryBuilder:
        """EMIT how: "snapshot", "changes", "append", "on window close" or "every 5 s": of exact queries.

        Raises ConfigError.
        """
        check_name(how, where="emit")
        word, _, length = how.strip().lower().partition(" ")
        if word == "every":
            return self._clause("EMIT", f"EVERY {_duration(length, 'emit every')}")
        if how.lower() not in _EMITS:
            raise ConfigError(f"emit: needed {', '.join(_EMITS)} or every and a duration; got {how!r}; choose one")
        return self._clause("EMIT", how.upper())

    def budget(self, budget: GivenBudget) -> QueryBuilder:
        """A Budget, a fraction of the exact work, a percentage ("10 %") or CPU time ("2 s")."""
        return replace(self, given=read_budget(budget))

    def error(self, error: float, confidence: float = 0.95, otherwise: str = "flag") -> QueryBuilder:
        """ERROR error CONFIDENCE confidence ELSE otherwise, of aggregates."""
        return self._clause("ERROR", f"{error!r} CONFIDENCE {confidence!r} ELSE {str(otherwise).upper()}")

    def sql(self) -> str:
        """The statement.  A Budget that SQL cannot express is not in it, but `run` observes it."""
        parts = [self._block()]
        for word, other in self.operations:
            parts += [word, other._block() if not other.operations else f"({other.sql()})"]
        if self.ordering:
            parts.append("ORDER BY " + ", ".join(self.ordering))
        if self.limited:
            parts.append(self.limited)
        parts += [f"{word} {text}" for word, text in self.clauses]
        if self.given is not None:
            parts.append(budget_text(self.given.unit, self.given.amount))
        return " ".join(part for part in parts if part)

    def _block(self) -> str:
        items = self.items or (*self.keys, *self.aggregates) or ("*",)
        if self.items and self.aggregates:
            items = (*self.items, *self.aggregates)
        parts = ["SELECT DISTINCT" if self.is_distinct else "SELECT", ", ".join(items), "FROM", ", ".join(self.sources)]
        if self.conditions:
            parts += ["WHERE", _all(self.conditions)]
        if self.keys:
            parts += ["GROUP BY", ", ".join(self.keys)]
        if self.kept:
            parts += ["HAVING", _all(self.kept)]
        return " ".join(parts)

    def __str__(self) -> str:
        return self.sql()

    def plan(self, params: Params = None) -> Query:
        """The bound query.  Raises SqlError."""
        return read_query(self.sql(), self.engine, params)

    def run(self, params: Params = None, **options: Any) -> Result:
        """A lazy result.  options: as for `Database.sql`."""
        return run_query(self.engine, self.plan(params), Options.of(options))

    def show(self, limit: int | None = 20) -> None:
        """Run it and print the first rows, as `Result.show`."""
        self.run().show(limit)

    def explain(self, analyze: bool = False, **options: Any) -> str:
        """The plan as a tree."""
        return self.run(**options).explain(analyze)


def _source(source: str, alias: str | None) -> str:
    if not isinstance(source, str) or not source:
        raise ConfigError(f"query: needed the name of a stream or relation; got {source!r}; register it first")
    if alias is not None:
        check_name(alias, where="query, alias")
    return identifier(source) if alias is None else f"{identifier(source)} AS {identifier(alias)}"


def _all(conditions: Sequence[str]) -> str:
    return conditions[0] if len(conditions) == 1 else " AND ".join(f"({each})" for each in conditions)


def _duration(given: Duration, where: str, least: int = 1) -> str:
    return text_literal(format_duration(parse_duration(given, where=where, least=least)))
