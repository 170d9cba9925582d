"""Inline relations: VALUES, generate_series and range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nile.expressions.places import Fault
from nile.expressions.tree import Constant, Kind
from nile.sql.expression_text import expression_text, identifier
from nile.summaries.heavy import pa

__all__ = ["MOST", "Listed", "Series", "listed_rows", "listed_series"]

MOST = 10_000_000
"""Rows that a series may have: 80 MB."""


@dataclass(frozen=True, slots=True)
class Series:
    """Numbers or times (microseconds) from begin, `step` apart; without the end or with it."""

    begin: int
    end: int
    step: int
    inclusive: bool
    times: bool

    @property
    def length(self) -> int:
        """How many there are."""
        span = self.end - self.begin
        past = abs(span) % abs(self.step) == 0 and not self.inclusive
        return 0 if span * self.step < 0 else max(0, abs(span) // abs(self.step) + 1 - past)


class Listed(str):
    """The name of a relation that is written down: its text, and what its columns are called."""

    written: str
    columns: tuple[str, ...]
    kinds: tuple[Kind, ...]
    content: tuple[tuple[Constant, ...], ...] | Series
    __slots__ = ("columns", "content", "kinds", "written")

    @property
    def schema(self) -> pa.Schema:
        """The types of its columns."""
        return pa.schema(zip(self.columns, [_ARROW[kind]() for kind in self.kinds], strict=True))

    def table(self) -> pa.Table:
        """Its rows."""
        if isinstance(self.content, Series):
            one = self.content
            numbers = pa.array(range(one.begin, one.begin + one.length * one.step, one.step), pa.int64())
            return pa.table([numbers.cast(self.schema.field(0).type)], schema=self.schema)
        columns = []
        for at, kind in enumerate(self.kinds):
            values = [row[at].value for row in self.content]
            if kind in ("timestamp", "date"):
                ticks = pa.array(values, pa.int64()).cast(pa.timestamp("us"))
                columns.append(ticks.cast(self.schema.field(at).type))
            else:
                columns.append(pa.array(values, self.schema.field(at).type))
        return pa.table(columns, schema=self.schema)


_ARROW = {
    "boolean": lambda: pa.bool_(),
    "integer": lambda: pa.int64(),
    "number": lambda: pa.float64(),
    "text": lambda: pa.string(),
    "timestamp": lambda: pa.timestamp("us"),
    "date": lambda: pa.date32(),
}


def _made(
    written: str,
    columns: tuple[str, ...],
    kinds: tuple[Kind, ...],
    content: tuple[tuple[Constant, ...], ...] | Series,
) -> Listed:
    made = Listed(f"{written} ({', '.join(map(identifier, columns))})")
    made.written, made.columns, made.kinds, made.content = written, columns, kinds, content
    return made


def _names(said: Sequence[str], names: Sequence[str], start: int) -> tuple[str, ...]:
    if len(said) > len(names):
        raise Fault(f"needed at most {len(names)} names of columns; got {len(said)}", start)
    shown = (*said, *names[len(said) :])
    if len({name.lower() for name in shown}) < len(shown):
        raise Fault("needed columns of different names; got one twice", start)
    return shown


def listed_rows(rows: Sequence[Sequence[Constant]], names: Sequence[str], start: int) -> Listed:
    """VALUES (1, 'a'), (2, 'b'); names: of the first columns.  Raises Fault."""
    if any(len(row) != len(rows[0]) for row in rows):
        raise Fault("needed as many values in each row of VALUES; got rows of different lengths", start)
    kinds: list[Kind] = []
    for at in range(len(rows[0])):
        found = {row[at].kind for row in rows} - {"null"}
        if found == {"integer", "number"}:
            found = {"number"}
        if found == {"date", "timestamp"}:
            found = {"timestamp"}
        if len(found) > 1 or not found <= _ARROW.keys():
            raise Fault(
                f"needed values of one kind in column {at + 1} of VALUES; got {', '.join(sorted(found))}", start
            )
        kinds.append(found.pop() if found else "integer")
    columns = _names(names, [f"col{at}" for at in range(len(kinds))], start)
    content = tuple(tuple(_as(value, kind) for value, kind in zip(row, kinds, strict=True)) for row in rows)
    written = ", ".join(f"({', '.join(map(_text, row))})" for row in content)
    return _made(f"(VALUES {written})", columns, tuple(kinds), content)


def _text(value: Constant) -> str:
    return "NULL" if value.value is None else expression_text(value, str)


def _as(value: Constant, kind: Kind) -> Constant:
    held = float(value.value) if kind == "number" and isinstance(value.value, int) else value.value
    return Constant(held, kind)


def listed_series(function: str, bounds: Sequence[Constant], names: Sequence[str], start: int) -> Listed:
    """generate_series (first, last [, step]), range (begin, end [, step]): whole numbers or times.  Raises Fault."""
    begin, end, *rest = bounds
    times = begin.kind in ("timestamp", "date")
    step = rest[0] if rest else Constant(1, "integer")
    wanted: tuple[set[Kind], Kind] = ({"timestamp", "date"}, "interval") if times else ({"integer"}, "integer")
    if not {begin.kind, end.kind} <= wanted[0] or step.kind != wanted[1] or None in [each.value for each in bounds]:
        raise Fault(f"needed {function} (1, 10), (1, 10, 2), or times and an INTERVAL; got something else", start)
    first, last, apart = (int(each.value or 0) for each in (begin, end, step))
    series = Series(first, last, apart, function == "generate_series", times)
    if series.step == 0:
        raise Fault(f"needed a step other than 0 in {function}; got 0", start)
    if series.length > MOST:
        raise Fault(f"needed at most {MOST:,} rows of {function}; got {series.length:,}", start)
    written = f"{function}({', '.join(expression_text(each, str) for each in (begin, end, step))})"
    return _made(written, _names(names, [function], start), ("timestamp" if times else "integer",), series)
