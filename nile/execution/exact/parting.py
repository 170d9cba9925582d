"""Rows parted by the hash of what must be equal, so that each part can be worked on by itself.

Source: GRACE hash partitioning (Kitsuregawa, Tanaka, Moto-oka, New Generation Computing 1, 1983), parted again where a
part is too large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from nile.base.spill import Spill, Spills
from nile.execution.exact.sorting import footprint, together
from nile.execution.values import column_of, schema_of
from nile.expressions.tree import Compare, Node, columns_of, conjuncts
from nile.operators.common.rows import row_codes
from nile.sql.plan import Join, Outer, inputs_of
from nile.summaries.hashing import key_words, mixed
from nile.summaries.heavy import pa
from nile.summaries.key_types import key_family

__all__ = [
    "Given", "all_that_fits", "apart", "are_hashed_alike", "blocks", "computed_keys", "one_part", "parts", "parts_by",
    "parts_of_all", "row_hashes",
]  # fmt: skip

Array = np.ndarray[Any, Any]
Hashes = Callable[[pa.RecordBatch], Array]
_BITS = 6
_PARTS = 1 << _BITS
_LEVELS = 64 // _BITS
_NULL = np.int64(0x6E756C6C)


def row_hashes(columns: Sequence[pa.Array], rows: int) -> Array:
    """A hash of each row: uint64 [n], the same for rows that are equal in GROUP BY.  Raises KeyTypeError."""
    hashes = np.zeros(rows, np.uint64)
    for given in columns:
        column = given
        if pa.types.is_nested(column.type):
            row_codes([column.slice(0, 0)], 0)  # says why not
        if pa.types.is_temporal(column.type) and not pa.types.is_interval(column.type):
            column = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
        words, valid = key_words(column, where="rows")
        if valid.shape[0]:
            words = np.where(valid, words, _NULL)
        hashes = mixed(hashes + mixed(words.view(np.uint64)) + np.uint64(0x9E3779B97F4A7C15))
    return hashes


def are_hashed_alike(kinds: Sequence[pa.DataType]) -> bool:
    """Whether values of these types that are equal have equal hashes.

    Whole numbers of any width have, doubles of any, and text of any layout; not times of different units.
    """
    if all(map(pa.types.is_integer, kinds)):
        return True
    if any(map(pa.types.is_nested, kinds)):
        return False
    if len(set(kinds)) == 1:
        return True
    return not any(map(pa.types.is_temporal, kinds)) and len({key_family(kind, where="key") for kind in kinds}) == 1


def computed_keys(node: Join | Outer) -> list[tuple[Node, Node]]:
    """What a join without equal columns asks to be equal of its left and of its right input, if it is hashed alike.

    As `CAST(a.x AS DOUBLE) = b.y` and `lower(a.s) = b.s` do: no other pairs can meet the condition.
    """
    inputs = inputs_of(node)
    if node.equal or len(inputs) != 2:
        return []
    none = [pa.RecordBatch.from_pylist([], schema_of(each.fields)) for each in inputs]
    found = []
    for each in conjuncts(node.condition):
        if not isinstance(each, Compare) or each.operator != "=":
            continue
        for pair in ((each.left, each.right), (each.right, each.left)):
            of = zip(pair, none, strict=True)
            if all(set(columns_of(side)) <= set(rows.schema.names) and any(columns_of(side)) for side, rows in of):
                types = [column_of(side, rows).type for side, rows in zip(pair, none, strict=True)]
                found += [pair] if are_hashed_alike(types) else []
    return found


def parts(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, hashes: Hashes, spills: Spills, share: int, level: int = 0
) -> Iterator[pa.RecordBatch | Spill]:
    """All rows, those of one hash in one part, in the order in which they came.

    A part is in memory, of `share` bytes or less, or a Spill of more rows, all of one hash.  Rows that together fit are
    one part, and nothing is written.  Cost: each row beyond that is written once, again for each factor of 64.
    """
    waiting: list[pa.RecordBatch] = []
    taken = 0
    for batch in batches:
        waiting.append(batch)
        taken += footprint(batch)
        if taken > share:
            break
    else:
        if waiting:
            yield together(waiting, schema)
        return
    lanes = _Lanes(schema, hashes, spills, level)
    lanes.put(together(waiting, schema))
    for waiting in _gathered(batches, share // 2):
        lanes.put(together(waiting, schema))
    waiting = []
    for spill, size, alike in lanes.all():
        if not len(spill):
            continue
        if size <= share:
            yield together(list(spill.popped()), schema)
        elif alike or level + 1 == _LEVELS:
            yield spill
            spill.close()
        else:
            yield from parts(spill.popped(), schema, hashes, spills, share, level + 1)


def parts_by(
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,
    keys: Callable[[pa.RecordBatch], Sequence[pa.Array]],
    spills: Spills,
    share: int,
) -> Iterator[pa.RecordBatch | Spill]:
    """Rows with equal keys in one part, as `parts` are; those of a Spill have one key, all of them."""

    def hashes(batch: pa.RecordBatch) -> Array:
        return row_hashes(keys(batch), batch.num_rows)

    for part in parts(batches, schema, hashes, spills, share):
        if isinstance(part, Spill):
            yield from apart(part, keys, spills)
        else:
            yield part


@dataclass(frozen=True, slots=True)
class Given:
    """One of several inputs that are parted alike.  kept: whether rows are wanted that other inputs have none for."""

    batches: Iterator[pa.RecordBatch]
    schema: pa.Schema
    hashes: Hashes
    kept: bool = False


def parts_of_all(
    inputs: Sequence[Given], spills: Spills, share: int, level: int = 0
) -> Iterator[list[pa.RecordBatch | Spill]]:
    """The rows of several inputs in parts: those of one hash in one part, in the order in which they came.

    Hashes that not all inputs have are left out, but for those of an input that is `kept`.  A part is in memory, of
    `share` bytes or less together, or a Spill for each input, all of one hash, which is closed behind it.
    """
    held, fits = all_that_fits(inputs, share)
    if fits:
        yield [together(waiting, given.schema) for waiting, given in zip(held, inputs, strict=True)]
        return
    lanes = []
    for waiting, given in zip(held, inputs, strict=True):
        made = _Lanes(given.schema, given.hashes, spills, level)
        for some in _gathered(chain(waiting, given.batches), share // 2):
            made.put(together(some, given.schema))
        lanes.append({at: (spill, size, alike) for at, (spill, size, alike) in enumerate(made.all()) if len(spill)})
    there = set[int].intersection(*(set(each) for each in lanes))
    there = there.union(*(each for each, given in zip(lanes, inputs, strict=True) if given.kept))
    for at in sorted(there):
        here = [each.get(at) or (spills.new(given.schema), 0, True) for each, given in zip(lanes, inputs, strict=True)]
        if sum(size for _, size, _ in here) <= share:
            yield [together(list(spill.popped()), spill.schema) for spill, *_ in here]
        elif all(alike for *_, alike in here) or level + 1 == _LEVELS:
            yield [spill for spill, *_ in here]
            for spill, *_ in here:
                spill.close()
        else:
            again = [replace(given, batches=spill.popped()) for (spill, *_), given in zip(here, inputs, strict=True)]
            yield from parts_of_all(again, spills, share, level + 1)


def all_that_fits(inputs: Sequence[Given], share: int) -> tuple[list[list[pa.RecordBatch]], bool]:
    """(of each input what was read, whether that is all and takes no more than `share` bytes)."""
    held: list[list[pa.RecordBatch]] = [[] for _ in inputs]
    taken = 0
    for waiting, given in zip(held, inputs, strict=True):
        for batch in given.batches:
            waiting.append(batch)
            taken += footprint(batch)
            if taken > share:
                return held, False
    return held, True


def one_part(given: Given, spills: Spills, share: int) -> pa.RecordBatch | Spill:
    """All rows of an input in one: in memory where they take no more than `share` bytes."""
    (held,), fits = all_that_fits([given], share)
    if fits:
        return together(held, given.schema)
    spill = spills.new(given.schema)
    for batch in chain(held, given.batches):
        spills.put(spill, batch)
    return spill


def blocks(part: pa.RecordBatch | Spill, share: int) -> Iterator[pa.RecordBatch]:
    """The rows of a part, about `share` bytes at a time, one block at least; they may be asked for again."""
    if not isinstance(part, Spill):
        yield part
        return
    none = True
    for waiting in _gathered(part.kept(), share):
        none = False
        yield together(waiting, part.schema)
    if none:
        yield together([], part.schema)


def _gathered(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[list[pa.RecordBatch]]:
    """Batches together, whenever they take more than `size` bytes, and those that are left."""
    waiting: list[pa.RecordBatch] = []
    taken = 0
    for batch in batches:
        waiting.append(batch)
        taken += footprint(batch)
        if taken > size:
            yield waiting
            waiting, taken = [], 0
    if waiting:
        yield waiting


class _Lanes:
    """Parts while they are written."""

    def __init__(self, schema: pa.Schema, hashes: Hashes, spills: Spills, level: int) -> None:
        self._spills = [spills.new(schema) for _ in range(_PARTS)]
        self._by = spills
        self._hashes = hashes
        self._shift = np.uint64(_BITS * level)
        self._sizes = [0] * _PARTS
        self._least = np.full(_PARTS, np.iinfo(np.uint64).max, np.uint64)
        self._most = np.zeros(_PARTS, np.uint64)

    def put(self, rows: pa.RecordBatch) -> None:
        hashes = self._hashes(rows)
        lane = ((hashes >> self._shift) & np.uint64(_PARTS - 1)).astype(np.int64)
        np.minimum.at(self._least, lane, hashes)
        np.maximum.at(self._most, lane, hashes)
        order = np.argsort(lane, kind="stable")
        begins = np.searchsorted(lane[order], np.arange(_PARTS + 1))
        rows = rows.take(pa.array(order))
        for k in range(_PARTS):
            part = rows.slice(begins[k], begins[k + 1] - begins[k])
            self._sizes[k] += footprint(part)
            self._by.put(self._spills[k], part)

    def all(self) -> Iterator[tuple[Spill, int, bool]]:
        """(the rows of a part, bytes that work on them takes, whether all are of one hash)."""
        for k, spill in enumerate(self._spills):
            yield spill, self._sizes[k], bool(self._least[k] == self._most[k])


def apart(rows: Spill, columns: Callable[[pa.RecordBatch], Sequence[pa.Array]], spills: Spills) -> Iterator[Spill]:
    """Rows of one hash, which may be of several keys, key by key; columns: the keys of a batch."""
    first = next(rows.kept()).slice(0, 1)

    def are_first(batch: pa.RecordBatch) -> Array:
        both = together([first, batch], rows.schema)
        codes, _ = row_codes(columns(both), both.num_rows)
        same: Array = codes[1:] == codes[0]
        return same

    if all(are_first(batch).all() for batch in rows.kept()):
        yield rows
        return
    own, others = spills.new(rows.schema), spills.new(rows.schema)
    for batch in rows.kept():
        same = are_first(batch)
        spills.put(own, batch.filter(pa.array(same)))
        spills.put(others, batch.filter(pa.array(~same)))
    yield own
    own.close()
    yield from apart(others, columns, spills)
    others.close()
