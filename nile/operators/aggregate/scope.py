"""Which tuples a standing query is about: an interval of ordinals, a set of values, and what is left to test.

A condition falls apart into the parts of its ANDs.  Parts over the time column alone select an interval of
the stream, parts over the grid's column alone select values, and both are decided for whole cells at once;
only what remains has to be put to every tuple.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import numpy as np

from nile.base.cells import parse_instant
from nile.base.durations import NS_PER_SECOND
from nile.base.times import TIME_LIMIT
from nile.expressions.conditions import Condition, parse_condition
from nile.expressions.tree import MIRRORED, Between, Column, Compare, Constant, In, Logic, Node, columns_of
from nile.summaries.errors import ConfigError
from nile.summaries.heavy import pa, pc

__all__ = ["Scope", "conjuncts", "contradiction", "grid_column", "instant", "read_conditions", "scope_of"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Scope:
    """The tuples of one query: ordinals [first, last), values that pass, and a test of each tuple.

    passes: uint8 [k] over the distinct values of the grid's column, None: all.  residual: bool [n], None: all;
    it is only ever read for tuples that a run pays to look at.  empty: why nothing can satisfy it, else "".
    covered: the share of the asked time that the stream still holds.
    ranged: whether the values are a range by its ends, which is found by halving instead of value by value.
    """

    name: str
    first: int
    last: int
    passes: Array | None = None
    residual: Array | None = None
    empty: str = ""
    covered: float = 1.0
    ranged: bool = False

    @property
    def tests_tuples(self) -> bool:
        """Whether knowing a tuple's time is not enough."""
        return self.passes is not None or self.residual is not None

    def match(self, at: Array, code: Array | None) -> Array:
        """Which of the tuples satisfy the query: bool [m] for ordinals int64 [m]; code: int32 [n] of the grid."""
        found: Array = (at >= self.first) & (at < self.last)
        if self.passes is not None and code is not None:
            found &= self.passes[code[at]] != 0
        if self.residual is not None:
            found &= self.residual[at]
        return found


def read_conditions(
    predicates: Mapping[str, str] | None, where: str | None, schema: pa.Schema, *, place: str
) -> tuple[tuple[str, tuple[Condition, ...]], ...]:
    """Each query's name and conditions (its own and the one for all), checked.  One unnamed query without predicates.

    Raises ConfigError, ExpressionError, UnknownColumn.
    """
    if where is not None and not isinstance(where, str):
        raise ConfigError(f"{place}, where: needed a condition as text; got {where!r}; write where='price > 0'")
    common = () if where is None else (_checked(where, schema, f"{place}, where"),)
    if predicates is None:
        return (("", common),)
    if not isinstance(predicates, Mapping) or not predicates:
        raise ConfigError(
            f"{place}: needed predicates as {{name: condition}}; got {predicates!r}; "
            "write predicates={'cheap': 'price < 2'}, or leave them out"
        )
    read = []
    for name, text in predicates.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise ConfigError(f"{place}: needed a name and a condition as text; got {name!r}: {text!r}; quote both")
        read.append((name, (*common, _checked(text, schema, f"{place}, '{name}'"))))
    return tuple(read)


def _checked(text: str, schema: pa.Schema, where: str) -> Condition:
    condition = parse_condition(text, where=where)
    condition.check(schema, where=where)
    return condition


def conjuncts(conditions: Sequence[Condition]) -> list[Condition]:
    """The parts of the ANDs of all conditions, each a condition of its own."""
    parts: list[Condition] = []
    for condition in conditions:
        waiting = [condition.tree]
        while waiting:
            node = waiting.pop()
            if isinstance(node, Logic) and node.operator == "AND":
                waiting.extend(reversed(node.items))
            else:
                # Conditions are equal when their texts are, so each part needs a text of its own.
                parts.append(Condition(f"{condition.text} [{len(parts)}]", columns_of(node), node, condition.looks_up))
    return parts


def grid_column(queries: Sequence[tuple[str, tuple[Condition, ...]]], time: str) -> str | None:
    """The column that most queries restrict by itself (the first of them on a tie); None when none does."""
    votes: dict[str, int] = {}
    for _, conditions in queries:
        for name in {part.columns[0] for part in conjuncts(conditions) if len(part.columns) == 1}:
            if name != time:
                votes[name] = votes.get(name, 0) + 1
    return min(votes, key=lambda name: (-votes[name], name)) if votes else None


def scope_of(
    name: str,
    parts: Sequence[Condition],
    batch: pa.RecordBatch,
    ts: Array,
    *,
    time: str,
    on: str | None,
    values: pa.Array | None,
    interval: tuple[int, int],
    covered: float,
) -> Scope:
    """Take a query's conditions apart.

    batch: the stream's columns [n]; values: the distinct values of column `on`, None: they were not told apart, and
    its conditions are tested tuple by tuple; interval: the ordinals that `between` and the window leave.  A part over
    time that holds on no single interval is tested tuple by tuple.
    """
    first, last = interval
    told = "" if first < last or ts.shape[0] == 0 else "its time range holds no tuple of the stream"
    passes: Array | None = None
    own: Array | None = None
    residual: Array | None = None
    ranged = True
    for part in parts:
        if part.columns == (time,):
            mask = _mask(part, batch)
            run = _run(mask)
            if run is not None:
                first, last = max(first, run[0]), min(last, run[1])
                continue
        elif on is not None and values is not None and part.columns == (on,):
            chosen = _mask(part, pa.RecordBatch.from_arrays([values], names=[on])).astype(np.uint8)
            passes = chosen if passes is None else passes & chosen
            ranged &= bool(_ranges(part.tree))
            continue
        else:
            mask = _mask(part, batch)
            if part.columns == (on,):
                own = mask if own is None else own & mask
        residual = mask if residual is None else residual & mask
    told = contradiction(parts, batch.schema) or told
    found = own if passes is None else passes
    if not told and found is not None and ts.shape[0] and not found.any():
        told = f"no value of '{on}' satisfies its conditions"
    if not told and first >= last and ts.shape[0]:
        told = "its time range holds no tuple of the stream"
    return Scope(name, first, max(first, last), passes, residual, told, covered, ranged)


def _mask(part: Condition, batch: pa.RecordBatch) -> Array:
    if not part.columns:
        # A constant condition has no column to tell its length by.
        single = pa.RecordBatch.from_arrays([pa.nulls(1)], names=["_"])
        holds = bool(pc.fill_null(part.mask(single), False)[0].as_py())
        return np.full(batch.num_rows, holds)
    found: Array = pc.fill_null(part.mask(batch), False).to_numpy(zero_copy_only=False)
    return found


def _run(mask: Array) -> tuple[int, int] | None:
    """[begin, end) where `mask` is true, if that is one interval (an empty one included)."""
    inside = np.flatnonzero(mask)
    if inside.shape[0] == 0:
        return 0, 0
    begin, end = int(inside[0]), int(inside[-1]) + 1
    return (begin, end) if end - begin == inside.shape[0] else None


def contradiction(parts: Sequence[Condition], schema: pa.Schema) -> str:
    """Why no tuple can satisfy all parts, where comparisons of a column with constants show it; else "".

    Looks at =, <, <=, >, >=, BETWEEN and IN over plain columns of numbers or text; finds `a < 1 AND a > 2`,
    not every absurdity.
    """
    bounds: dict[str, tuple[Any, bool, Any, bool]] = {}
    chosen: dict[str, set[Any]] = {}
    for part in parts:
        for column, low, low_open, high, high_open in _ranges(part.tree):
            if not all(end is None or _ordered(end, schema.field(column).type) for end in (low, high)):
                continue
            had = bounds.get(column, (None, False, None, False))
            if low is not None and (had[0] is None or (low, low_open) > (had[0], had[1])):
                had = (low, low_open, had[2], had[3])
            if high is not None and (had[2] is None or (high, not high_open) < (had[2], not had[3])):
                had = (had[0], had[1], high, high_open)
            bounds[column] = had
            ends = had[0] is not None and had[2] is not None
            if ends and (had[0] > had[2] or (had[0] == had[2] and (had[1] or had[3]))):
                return f"its conditions on '{column}' contradict each other"
        node = part.tree
        if isinstance(node, In) and isinstance(node.item, Column):
            column, kind = node.item.name, schema.field(node.item.name).type
            constants = [choice.value for choice in node.choices if isinstance(choice, Constant)]
            if len(constants) == len(node.choices) and all(_ordered(value, kind) for value in constants):
                chosen[column] = chosen[column] & {*constants} if column in chosen else {*constants}
                if not chosen[column]:
                    return f"its conditions on '{column}' contradict each other"
    return ""


def _ordered(value: object, kind: pa.DataType) -> bool:
    """Whether Python orders such constants as the column orders its values."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)
    return isinstance(value, str) and (pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _ranges(node: Node) -> list[tuple[str, Any, bool, Any, bool]]:
    """(column, low, low is open, high, high is open) of a comparison with a constant."""
    if isinstance(node, Between) and isinstance(node.item, Column):
        if isinstance(node.low, Constant) and isinstance(node.high, Constant):
            return [(node.item.name, node.low.value, False, node.high.value, False)]
        return []
    if not isinstance(node, Compare):
        return []
    column, constant, operator = node.left, node.right, node.operator
    if isinstance(column, Constant):
        column, constant, operator = constant, column, MIRRORED[operator]
    if not isinstance(column, Column) or not isinstance(constant, Constant) or constant.value is None:
        return []
    value = constant.value
    match operator:
        case "=":
            return [(column.name, value, False, value, False)]
        case "<" | "<=":
            return [(column.name, None, False, value, operator == "<")]
        case ">" | ">=":
            return [(column.name, value, operator == ">", None, False)]
    return []


def instant(value: object, *, where: str) -> int:
    """A moment in nanoseconds since 1970: text in ISO form, a datetime or date (UTC without zone), or seconds.

    Raises ConfigError.
    """
    needed = "needed a moment: '2011-12-09 08:01', a datetime, or a number of seconds since 1970"
    if isinstance(value, np.datetime64):
        fine = np.datetime_data(value.dtype)[0] in ("ms", "us", "ns")
        value = str(value if fine else value.astype("datetime64[s]"))
    elif isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (datetime, date)):
        value = value.isoformat()
    if isinstance(value, str):
        found = parse_instant(value.strip())
        if found is None:
            raise ConfigError(f"{where}: {needed}; got {value!r}; check the spelling")
        return _within(found, value, needed, where)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or (isinstance(value, float) and not math.isfinite(value)):
        raise ConfigError(f"{where}: {needed}; got {value!r}; None leaves that end open")
    assert isinstance(value, (int, float))
    return _within(value * NS_PER_SECOND, value, needed, where)


def _within(ns: float, value: object, needed: str, where: str) -> int:
    """The moment, where a tuple could be."""
    if not -TIME_LIMIT <= ns <= TIME_LIMIT:
        raise ConfigError(f"{where}: {needed}; got {value!r:.40}, beyond 1750 to 2189; check the unit")
    return round(ns)
