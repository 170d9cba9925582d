"""From a loaded stream and the text of conditions to the input of standing selections: encode, order, evaluate."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.joining import Loaded
from nile.operators.selection import SelectionInput
from nile.sql.expressions import Condition, parse_condition
from summaries.errors import ConfigError, KeyTypeError, UnknownColumn
from summaries.hashing import KeyTable
from summaries.lazy import lazy

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pa = lazy("pyarrow")
    pc = lazy("pyarrow.compute")

__all__ = ["Selectable", "read_predicates"]

Array = np.ndarray[Any, Any]


def read_predicates(
    predicates: Mapping[str, str], schema: pa.Schema, on: str, *, stream: str
) -> tuple[tuple[str, Condition], ...]:
    """Names and conditions, checked: each may use the summary's column and no other.

    Raises ConfigError, ExpressionError, UnknownColumn.
    """
    place = f"selections over stream '{stream}'"
    if not isinstance(predicates, Mapping) or not predicates:
        raise ConfigError(
            f"{place}: needed predicates as {{name: condition}}; got {predicates!r}; "
            "write predicates={'cheap': 'price < 2'}"
        )
    read = []
    for name, text in predicates.items():
        where = f"{place}, '{name}'"
        if not isinstance(name, str) or not isinstance(text, str):
            raise ConfigError(f"{place}: needed a name and a condition as text; got {name!r}: {text!r}; quote both")
        condition = parse_condition(text, where=where)
        condition.check(schema, where=where)
        others = [column for column in condition.columns if column != on]
        if others:
            raise ConfigError(
                f"{where}: needed a condition over '{on}', the column that is summarised; got one over "
                f"'{others[0]}'; select with on='{others[0]}', or put it into the stream's where"
            )
        read.append((name, condition))
    return tuple(read)


class Selectable:
    """A loaded stream with everything its standing selections need, worked out once for all their runs.

    `values`: the distinct keys, in order of first appearance (null is one of them).  Conditions are
    evaluated once a distinct key.  `numbers`: float64 [k], NaN where a key is no number.
    Raises KeyTypeError for a column that cannot be a key.
    """

    def __init__(self, loaded: Loaded, on: str, predicates: tuple[tuple[str, Condition], ...]) -> None:
        self.loaded = loaded
        self.on = on
        self.names = tuple(name for name, _ in predicates)
        table = KeyTable()
        codes = table.encode(loaded.key, where=f"stream '{loaded.name}', column '{on}'").codes
        values = table.decode(np.arange(table.known))
        self.code, self.values = _with_null(codes, values)
        batch = pa.RecordBatch.from_arrays([self.values], names=[on])
        passes = np.zeros((len(predicates), len(self.values)), np.uint8)
        for q, (_, condition) in enumerate(predicates):
            passes[q] = pc.fill_null(condition.mask(batch), False).to_numpy(zero_copy_only=False)
        self.numbers = _numbers(self.values)
        self.input = SelectionInput(
            ts=loaded.ts,
            code=self.code,
            rank=_ranks(self.values),
            passes=passes,
            magnitude=np.abs(np.where(np.isfinite(self.numbers), self.numbers, 0.0)),
        )

    @property
    def exact(self) -> dict[str, int]:
        """How many tuples satisfy each predicate."""
        frequency = np.bincount(self.code, minlength=len(self.values))
        return {name: int(frequency @ self.input.passes[q]) for q, name in enumerate(self.names)}

    def query(self, name: str) -> int:
        """The number of a query.  Raises UnknownColumn, with the nearest name."""
        if name in self.names:
            return self.names.index(name)
        close = difflib.get_close_matches(str(name), self.names, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"there are {len(self.names)}"
        raise UnknownColumn(f"selections over stream '{self.loaded.name}': no selection is named {name!r}; {hint}")

    def need_numbers(self, function: str) -> None:
        """Raises KeyTypeError unless the column holds numbers."""
        if not _is_number(self.values.type):
            raise KeyTypeError(
                f"{function}({self.on}): needed a column of numbers; stream '{self.loaded.name}' has "
                f"{self.values.type} there; select on a numeric column"
            )


def _with_null(codes: Array, values: pa.Array) -> tuple[Array, pa.Array]:
    """Null as a key like others, numbered by its first appearance."""
    null = codes < 0
    if not null.any():
        return codes, values
    at = int(codes[: int(np.argmax(null))].max(initial=-1)) + 1
    shifted = np.where(null, at, codes + (codes >= at)).astype(np.int32)
    whole = pa.concat_arrays([values.slice(0, at), pa.nulls(1, values.type), values.slice(at)])
    return shifted, whole


def _ranks(values: pa.Array) -> Array:
    """Each key's place in the order of keys, nulls first: int64 [k]."""
    order = pc.array_sort_indices(values, null_placement="at_start").to_numpy(zero_copy_only=False)
    ranks = np.empty(order.shape[0], np.int64)
    ranks[order] = np.arange(order.shape[0])
    return ranks


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _numbers(values: pa.Array) -> Array:
    if not _is_number(values.type):
        return np.full(len(values), np.nan)
    numbers: Array = pc.fill_null(values.cast(pa.float64(), safe=False), np.nan).to_numpy(zero_copy_only=False)
    return numbers
