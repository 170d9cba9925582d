"""Numbers as a table: a row per query and group, and an interval for every number."""

from __future__ import annotations

import difflib
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nile.aggregates.asked import Aggregate
from nile.answers.answer import SHOWN, Answer
from nile.operators.aggregate.estimates import Number
from nile.operators.aggregate.numbers import Numbers
from nile.operators.aggregate.ordered import Ordered
from nile.report.pages.plot import Bar, Plot
from nile.summaries.errors import ConfigError, UnknownColumn
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa

__all__ = ["AggregateTable"]


class AggregateTable(Answer):
    """A row for every query (column `query`, when they are named) and group.

    For an aggregate `x`: its value `x`, the interval `x_low` and `x_high`, and `x_certified`, whether that interval
    may be relied on.  top_k gives a list of {value, count, low, high}.  Null: no tuple counts; a null that is not
    certified: none was seen.
    """

    def __init__(
        self,
        place: str,
        aggregates: Sequence[Aggregate],
        labels: Sequence[pa.Array | Ordered | None],
        by: Mapping[str, pa.Array],
        names: Sequence[str],
        *,
        standing: bool,
    ) -> None:
        """labels: for each aggregate the distinct values behind its codes, what its numbers stand for, or None; by: one
        value a group.
        """
        self._place = place
        self._aggregates = tuple(aggregates)
        self._labels = tuple(labels)
        self._by = dict(by)
        self._names = tuple(names)
        self._standing = standing
        self._numbers: list[Numbers] = []

    @abstractmethod
    def _shown(self, q: int) -> list[int]:
        """The groups of query q that have a row."""

    def numbers(self) -> Iterator[tuple[str, tuple[Any, ...], str, Number]]:
        """(query, group, aggregate, number), row by row."""
        columns = [labels.to_pylist() for labels in self._by.values()]
        for q, query in enumerate(self._names):
            for g in self._shown(q):
                group = tuple(column[g] for column in columns)
                for a, aggregate in enumerate(self._aggregates):
                    yield query, group, aggregate.name, self._told(q, a, g)

    @property
    def names(self) -> tuple[str, ...]:
        """The standing queries, as they were named."""
        return self._names

    def groups(self, query: str | None = None) -> list[tuple[Any, ...]]:
        """The groups a query's answer has, as tuples of their values."""
        q = self._query(query)
        columns = [labels.to_pylist() for labels in self._by.values()]
        return [tuple(column[g] for column in columns) for g in self._shown(q)]

    def value(self, name: str, *, query: str | None = None, group: Any = None) -> Any:
        """One value: int, float, list for top_k, None for null.  Raises UnknownColumn, ConfigError."""
        return self._number(name, query, group).value

    def estimate(self, name: str, *, query: str | None = None, group: Any = None) -> Estimate:
        """One number with its interval; a null is an Estimate of NaN.  group: one value, or a tuple of them.

        Raises UnknownColumn, ConfigError.
        """
        number = self._number(name, query, group)
        if isinstance(number.value, list):
            raise ConfigError(f"{self._place}: {name!r} is a list of estimates; use value({name!r})")
        return Estimate.exact(math.nan) if number.estimate is None else number.estimate

    @property
    def overall(self) -> Estimate | None:
        """The number, where there is but one."""
        if self._by or len(self._aggregates) != 1 or len(self._names) != 1:
            return None
        number = self._told(0, 0, 0)
        return None if isinstance(number.value, list) else self.estimate(self._aggregates[0].name)

    def __getitem__(self, name: str) -> Estimate:
        """`estimate(name)` of an answer with one query and no groups."""
        return self.estimate(name)

    @property
    def schema(self) -> pa.Schema:
        """The columns of `to_arrow`."""
        return self.to_arrow().schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows as record batches."""
        yield from self.to_arrow().to_batches()

    def _seen(self) -> tuple[pa.RecordBatch | None, bool]:
        head = self.to_arrow().slice(0, SHOWN).combine_chunks().to_batches()
        return (head[0] if head else None), True

    def plot(self, column: str | None = None, *, bins: int = 20) -> Plot:  # noqa: ARG002
        """A number of every group, with its interval.  column: which (None: the first); a row is a bar, bins unused.

        Raises UnknownColumn, and ConfigError for one that is no number: top_k, text, a time.
        """
        called = column or self._aggregates[0].name
        if called not in [aggregate.name for aggregate in self._aggregates]:
            raise UnknownColumn(
                f"plot: needed one of {', '.join(aggregate.name for aggregate in self._aggregates)}; got {called!r}; "
                "name one"
            )
        bars = []
        for query, group, name, number in self.numbers():
            if name != called:
                continue
            place = ", ".join(str(part) for part in ([query] if self._standing else []) + list(group))
            if number.value is None:
                continue
            if number.estimate is None:
                raise ConfigError(f"plot: needed a number for {called!r}; got {number.value!r}; plot another column")
            told = number.estimate
            bars.append(Bar(place or called, float(told.value), float(told.low), float(told.high)))
        across = ", ".join(["query"] * self._standing + list(self._by)) or "all"
        return Plot(across, called, tuple(bars), "with the interval of each number; groups without one are left out")

    def to_arrow(self) -> pa.Table:
        """All rows.  Columns: query (when named), the groups, then four for every aggregate."""
        rows = [(q, g) for q in range(len(self._numbers)) for g in self._shown(q)]
        columns: dict[str, pa.Array] = {}
        if self._standing:
            columns["query"] = pa.array([self._names[q] for q, _ in rows], pa.string())
        for name, labels in self._by.items():
            columns[name] = labels.take(pa.array([g for _, g in rows], pa.int64()))
        for a, aggregate in enumerate(self._aggregates):
            stands = isinstance(self._labels[a], Ordered)
            of = [self._numbers[q][a] for q in range(len(self._numbers))]
            numbers = [self._told(q, a, g) if stands else of[q][g] for q, g in rows]
            if aggregate.function == "top_k":
                columns[aggregate.name] = self._lists(numbers, a)
                continue
            null = Estimate.exact(math.nan)
            estimates = [null if n.estimate is None else n.estimate for n in numbers]
            known = [n.value is not None for n in numbers]
            held = self._labels[a]
            if isinstance(held, Ordered):
                columns[aggregate.name] = pa.array([n.value for n in numbers], held.kind)
                known = [False] * len(numbers)
            else:
                columns[aggregate.name] = _values([n.value for n in numbers])
            ends = ("low", [e.low for e in estimates]), ("high", [e.high for e in estimates])
            for end, found in ends:
                shown = [float(one) if have else None for one, have in zip(found, known, strict=True)]
                columns[f"{aggregate.name}_{end}"] = pa.array(shown, pa.float64())
            sure = [
                self._is_certified(q, a, g) if stands or number.estimate is None else number.estimate.certified
                for (q, g), number in zip(rows, numbers, strict=True)
            ]
            columns[f"{aggregate.name}_certified"] = pa.array(sure, pa.bool_())
        return pa.table(columns)

    def _query(self, query: str | None) -> int:
        names = self.names
        if query is None:
            if len(names) == 1:
                return 0
            raise ConfigError(f"{self._place}: needed query=, one of {len(names)}; got none; name one")
        if query in names:
            return names.index(query)
        close = difflib.get_close_matches(str(query), names, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"there are {len(names)}"
        raise UnknownColumn(f"{self._place}: no query is named {query!r}; {hint}")

    def _number(self, name: str, query: str | None, group: Any) -> Number:
        names = [aggregate.name for aggregate in self._aggregates]
        if name not in names:
            close = difflib.get_close_matches(str(name), names, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"there are {', '.join(names)}"
            raise UnknownColumn(f"{self._place}: no aggregate is named {name!r}; {hint}")
        q = self._query(query)
        at = 0
        if self._by:
            wanted = group if isinstance(group, tuple) else (group,)
            columns = [labels.to_pylist() for labels in self._by.values()]
            found = [g for g in self._shown(q) if tuple(column[g] for column in columns) == wanted]
            if not found:
                raise UnknownColumn(f"{self._place}: no group {group!r} in the answer; groups() lists them")
            at = found[0]
        elif group is not None:
            raise ConfigError(f"{self._place}: needed no group, the query has no by; got {group!r}; leave it out")
        return self._told(q, names.index(name), at)

    def _told(self, q: int, a: int, g: int) -> Number:
        """A number as its aggregate's value."""
        number, stands = self._numbers[q][a][g], self._labels[a]
        return stands.told(number) if isinstance(stands, Ordered) else number

    def _is_certified(self, q: int, a: int, g: int) -> bool:
        """Whether the interval is certain to hold; of a value without one, whether it is the exact one."""
        estimate = self._numbers[q][a][g].estimate
        if estimate is None:
            return True
        exact = estimate.certified and (estimate.low == estimate.high or math.isnan(estimate.value))
        return exact if isinstance(self._labels[a], Ordered) else estimate.certified

    def _lists(self, numbers: list[Number], a: int) -> pa.Array:
        labels = self._labels[a]
        assert not isinstance(labels, Ordered)
        kind = pa.string() if labels is None else labels.type
        entry = pa.struct([("value", kind), ("count", pa.float64()), ("low", pa.float64()), ("high", pa.float64())])
        return pa.array([number.value for number in numbers], pa.list_(entry))


def _values(values: list[Any]) -> pa.Array:
    """Integers where all are (int64, or decimal beyond), doubles otherwise."""
    some = [value for value in values if value is not None]
    if some and all(isinstance(value, int) for value in some):
        fits = all(-(1 << 63) <= value < 1 << 63 for value in some)
        if fits:
            return pa.array(values, pa.int64())
        if all(abs(value) < 10**38 for value in some):
            return pa.array(values, pa.decimal128(38, 0))
    return pa.array([None if value is None else float(value) for value in values], pa.float64())
