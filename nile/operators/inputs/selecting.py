"""From a loaded stream and the text of conditions to the input of standing selections: encode, order, evaluate."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from nile.base.nearest import nearest
from nile.expressions.binding import bind
from nile.expressions.conditions import Condition, Value, parse_condition
from nile.expressions.outcomes import is_contradictory, is_ordered, outcomes
from nile.operators.common.predicate_index import EDGE, FULL
from nile.operators.common.rows import ranks_of
from nile.operators.drive.live_selection import Judged
from nile.operators.inputs.joining import Loaded
from nile.operators.selection.data import SelectionInput
from nile.pyramid.grid.manager import SummaryManager
from nile.summaries.errors import ConfigError, KeyTypeError, MemoryRefused, UnknownColumn
from nile.summaries.hashing import KeyTable
from nile.summaries.heavy import pa, pc

__all__ = ["Selectable", "columns_beside", "judged", "read_predicates"]

Array = np.ndarray[Any, Any]
_MOST_BYTES = 1 << 32


def read_predicates(
    predicates: Mapping[str, str], schema: pa.Schema, *, stream: str
) -> tuple[tuple[str, Condition], ...]:
    """Names and conditions, checked against the columns of the stream.

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
        read.append((name, condition))
    return tuple(read)


def columns_beside(on: str, predicates: tuple[tuple[str, Condition], ...]) -> tuple[str, ...]:
    """The columns that predicates use beside `on`, each once."""
    used = (column for _, condition in predicates for column in condition.columns if column != on)
    return tuple(dict.fromkeys(used))


class Selectable:
    """A loaded stream with everything its standing selections need, worked out once for all their runs.

    `values`: the distinct keys, in order of first appearance (null is one of them).  Conditions over `on` alone are
    evaluated once a distinct key; those with other columns tuple by tuple, 1 byte each.  `impossible`: the predicates
    that no value of `on` can satisfy.
    Raises KeyTypeError for a column that cannot be a key, MemoryRefused for more than 4 GiB of what predicates say.
    """

    def __init__(
        self,
        loaded: Loaded,
        on: str,
        predicates: tuple[tuple[str, Condition], ...],
        summary: SummaryManager | None = None,
        worth: Value | None = None,
    ) -> None:
        """worth: what a tuple counts for by value; None: the size of its value of `on`."""
        self.loaded = loaded
        self.on = on
        self.names = tuple(name for name, _ in predicates)
        self._summary, self._worth = summary, worth
        self._table = table = KeyTable(loaded.hasher)
        encoded = table.encode(loaded.key, where=f"stream '{loaded.name}', column '{on}'")
        values = table.decode(np.arange(table.known))
        self.code, self.values = _with_null(encoded.codes, values)
        self._null = int(self.code[np.argmax(encoded.codes < 0)]) if len(self.values) > len(values) else None
        _fit(len(predicates), len(self.values), loaded, sum(_is_mixed(on, condition) for _, condition in predicates))
        self._says, self._learned, self.impossible = _says(self.values, on, loaded, predicates)
        self._verdict_row, self._verdict = _verdicts(self.values, self.code, on, loaded, predicates)

    @cached_property
    def numbers(self) -> Array:
        """float64 [k], NaN where a key is no number."""
        return _numbers(self.values)

    @cached_property
    def magnitude(self) -> Array:
        """What a tuple of each key counts for by value: float64 [k]."""
        if self._worth is not None:
            return _worths(self.values, self.code, self.on, self.loaded, self._worth)
        return np.abs(np.where(np.isfinite(self.numbers), self.numbers, 0.0))

    @cached_property
    def input(self) -> SelectionInput:
        """What operators take that go through the tuples as they come.  O(k log k) beside the rest."""
        hashes = self._table.hashes()
        return SelectionInput(
            ts=self.loaded.ts,
            code=self.code,
            rank=ranks_of(self.values),
            says=self._says,
            magnitude=self.magnitude,
            hashes=hashes if self._null is None else np.insert(hashes, self._null, np.uint64(0)),
            verdict=self._verdict,
            verdict_row=self._verdict_row,
            learned=self._learned,
            summary=self._summary,
        )

    def truth(self, query: int) -> Array:
        """Which tuples satisfy a query: bool [n]."""
        row = int(self._verdict_row[query])
        return np.asarray(self._verdict[row] != 0 if row >= 0 else self._says[query][self.code] == FULL)

    @property
    def exact(self) -> dict[str, int]:
        """How many tuples satisfy each predicate."""
        return {name: int(np.count_nonzero(self.truth(q))) for q, name in enumerate(self.names)}

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


def _says(
    values: pa.Array, on: str, loaded: Loaded, predicates: tuple[tuple[str, Condition], ...]
) -> tuple[Array, int, tuple[str, ...]]:
    """What each predicate says of each key, uint8 [q, k]; how many have to be put to every key; contradictory ones."""
    says = np.zeros((len(predicates), len(values)), np.uint8)
    if len(values) == 0:
        return says, 0, ()
    batch = pa.RecordBatch.from_arrays([values], names=[on])
    others = [] if loaded.carried is None else list(loaded.carried.schema)
    schema = pa.schema([pa.field(on, values.type), *others])
    learned = 0
    impossible = []
    for q, (name, condition) in enumerate(predicates):
        tree = bind(condition.tree, schema, where=f"selection '{name}'")
        found = outcomes(tree, batch)
        says[q, found.true] = EDGE
        says[q, found.is_certain] = FULL
        learned += not is_ordered(tree, on)
        if is_contradictory(tree, schema.field(0)):
            impossible.append(name)
    return says, learned, tuple(impossible)


def judged(rows: pa.StructArray, on: str, condition: Condition) -> Judged:
    """What a condition says of tuples, by their columns: of each one's value of `on` alone, and of all of it.

    Raises KeyTypeError for a column that cannot be a key.
    """
    values = rows.field(on)
    if pa.types.is_null(values.type):
        values = values.cast(pa.int64())
    encoded = values if pa.types.is_dictionary(values.type) else pc.dictionary_encode(values, null_encoding="encode")
    distinct, code = encoded.dictionary, encoded.indices.to_numpy(zero_copy_only=False)
    others = [field for field in rows.type if field.name != on]
    tree = bind(condition.tree, pa.schema([pa.field(on, distinct.type), *others]), where="selection")
    says = np.zeros(len(distinct), np.uint8)
    if len(distinct):
        found = outcomes(tree, pa.RecordBatch.from_arrays([distinct], names=[on]))
        says[found.true], says[found.is_certain] = EDGE, FULL
    numbers = np.nan_to_num(np.abs(_numbers(distinct)), nan=0.0, posinf=0.0)
    said: Array = says[code]
    truth = (said == FULL).astype(np.uint8)
    if _is_mixed(on, condition):
        mask = condition.mask(pa.RecordBatch.from_struct_array(rows))
        truth = pc.fill_null(mask, False).to_numpy(zero_copy_only=False).astype(np.uint8)
    return Judged(said, truth, numbers[code])


def _is_mixed(on: str, condition: Condition) -> bool:
    return any(column != on for column in condition.columns)


def _fit(queries: int, keys: int, loaded: Loaded, mixed: int) -> None:
    """Refuse what could not be held: a byte for each predicate and key, and for each mixed predicate and tuple."""
    needed = queries * keys + mixed * len(loaded)
    if needed > _MOST_BYTES:
        raise MemoryRefused(
            f"selections over stream '{loaded.name}': needed at most 4 GiB of what predicates say; got "
            f"{needed / 2**30:.1f} GiB: {queries} predicates x {keys:,} values, {mixed} of them over other columns x "
            f"{len(loaded):,} tuples; ask fewer at once, or put what they share into the stream's where"
        )


def _verdicts(
    values: pa.Array, code: Array, on: str, loaded: Loaded, predicates: tuple[tuple[str, Condition], ...]
) -> tuple[Array, Array]:
    """(row of each predicate or -1, whether each tuple satisfies it) of predicates over more columns than `on`."""
    rows = np.full(len(predicates), -1, np.int32)
    mixed = [q for q, (_, condition) in enumerate(predicates) if _is_mixed(on, condition)]
    verdict = np.zeros((len(mixed), len(loaded)), np.uint8)
    carried = loaded.carried
    if carried is None:  # no condition needs more, or there is no tuple
        return np.full_like(rows, -1), np.zeros((0, len(loaded)), np.uint8)
    for row, q in enumerate(mixed):
        rows[q] = row
        condition = predicates[q][1]
        columns = {
            name: values.take(pa.array(code)) if name == on else carried.column(name) for name in condition.columns
        }
        chosen = condition.mask(pa.RecordBatch.from_pydict(columns))
        verdict[row] = pc.fill_null(chosen, False).to_numpy(zero_copy_only=False)
    return rows, verdict


def _worths(values: pa.Array, code: Array, on: str, loaded: Loaded, worth: Value) -> Array:
    """What tuples of each key are worth in the mean, by size: float64 [k]; none where that is null or no number."""
    if not len(loaded):
        return np.zeros(len(values))
    columns = {name: values.take(pa.array(code)) if name == on else _carried(loaded, name) for name in worth.columns}
    of = worth.of(pa.RecordBatch.from_pydict(columns), where=f"stream '{loaded.name}', preference")
    if not _is_number(of.type):
        raise KeyTypeError(
            f"preference over stream '{loaded.name}': needed a number that a count is multiplied by; got {of.type} of "
            f"{worth.text}; name a numeric expression"
        )
    each = np.abs(np.nan_to_num(_numbers(of), nan=0.0, posinf=0.0, neginf=0.0))
    often = np.bincount(code, minlength=len(values))
    return np.bincount(code, weights=each, minlength=len(values)) / np.maximum(often, 1)


def _carried(loaded: Loaded, name: str) -> pa.Array:
    assert loaded.carried is not None
    return loaded.carried.column(name)


def _with_null(codes: Array, values: pa.Array) -> tuple[Array, pa.Array]:
    """Null as a key like others, numbered by its first appearance."""
    null = codes < 0
    if not null.any():
        return codes, values
    at = int(codes[: int(np.argmax(null))].max(initial=-1)) + 1
    shifted = np.where(null, at, codes + (codes >= at)).astype(np.int32)
    whole = pa.concat_arrays([values.slice(0, at), pa.nulls(1, values.type), values.slice(at)])
    return shifted, whole


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _numbers(values: pa.Array) -> Array:
    if not _is_number(values.type):
        return np.full(len(values), np.nan)
    numbers: Array = pc.fill_null(nearest(values, pa.float64(), safe=False), np.nan).to_numpy(zero_copy_only=False)
    return numbers
