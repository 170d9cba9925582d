"""Conditions over the columns of several streams: which combinations of a join are outputs (`where`).

    "a.price > 2 * b.price and a.customer_id <> b.customer_id and a.quantity > 0"

Columns are qualified by the stream's name or alias; a name that only one stream has may stand alone.  What may
be written, its types and its three-valued logic are those of `nile.expressions.conditions`.  The condition is taken
apart at its outermost ANDs: what speaks of one stream alone selects that stream's tuples before they are
inserted, the rest is asked of each candidate.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.base.raw import check_columns
from nile.expressions.binding import bind
from nile.expressions.evaluate import evaluate_mask
from nile.expressions.reading import place, read_condition
from nile.expressions.tree import Logic, Node, columns_of
from nile.summaries.errors import ExpressionError, UnknownStream
from nile.summaries.heavy import pa, pc

__all__ = ["PairCondition", "StreamNames", "read_pair_condition"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class PairCondition:
    """A condition over several streams, read, typed and taken apart.

    text: as it was written; aliases: the streams' names in the statement; alone: for each stream the part that
    speaks of it alone (None: nothing does); several: the part over two streams or more (None: there is none).
    Columns inside the parts are named "alias.column".
    """

    text: str
    aliases: tuple[str, ...]
    alone: tuple[Node | None, ...]
    several: Node | None

    @property
    def over_several(self) -> bool:
        """Whether candidates must be looked at."""
        return self.several is not None

    def selects(self, stream: int) -> bool:
        """Whether some part speaks of this stream alone."""
        return self.alone[stream] is not None

    def columns(self, stream: int) -> tuple[str, ...]:
        """The columns of a stream that the condition needs, each once."""
        parts = [node for node in (self.alone[stream], self.several) if node is not None]
        return tuple(dict.fromkeys(name for node in parts for name in self._own(node, stream)))

    def columns_of(self, stream: int) -> tuple[str, ...]:
        """The columns of a stream that candidates are asked for."""
        return () if self.several is None else self._own(self.several, stream)

    def name_of(self, stream: int, column: str) -> str:
        """A column's name among the columns of candidates."""
        return f"{self.aliases[stream]}.{column}"

    def _own(self, node: Node, stream: int) -> tuple[str, ...]:
        prefix = f"{self.aliases[stream]}."
        return tuple(name.removeprefix(prefix) for name in columns_of(node) if name.startswith(prefix))

    def select(self, stream: int, columns: pa.RecordBatch) -> Array:
        """Which tuples of a stream its own part selects: bool [n]; null does not select."""
        node = self.alone[stream]
        assert node is not None
        named = columns.rename_columns([self.name_of(stream, name) for name in columns.schema.names])
        return _true(evaluate_mask(node, named))

    def passing(self, candidates: pa.RecordBatch) -> Array:
        """Which candidates satisfy the part over several streams: bool [n]; columns are named by `name_of`."""
        assert self.several is not None
        return _true(evaluate_mask(self.several, candidates))


def _true(mask: Any) -> Array:
    selected: Array = pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
    return selected


def read_pair_condition(
    text: str, aliases: Sequence[str], schemas: Sequence[pa.Schema], *, where: str
) -> PairCondition:
    """`text` as a condition over streams called `aliases`, whose columns `schemas` gives, one for one.

    Raises ExpressionError for what cannot be said, for a name that several streams have and for types that do
    not go together, UnknownStream and UnknownColumn with the nearest name.
    """
    names = StreamNames(text, tuple(aliases), tuple(schemas), where)
    tree = read_condition(text, where=where, resolve=names.resolve)
    fields = [
        pa.field(f"{alias}.{field.name}", field.type)
        for alias, schema in zip(aliases, schemas, strict=True)
        for field in schema
    ]
    bound = bind(tree, pa.schema(fields), where=place(text, where))
    alone: list[list[Node]] = [[] for _ in aliases]
    several: list[Node] = []
    for part in bound.items if isinstance(bound, Logic) and bound.operator == "AND" else (bound,):
        used = {name.split(".", 1)[0] for name in columns_of(part)}
        if len(used) > 1:
            several.append(part)
        else:  # a part without columns is as true of one stream's tuples as of all
            alone[aliases.index(used.pop()) if used else 0].append(part)
    return PairCondition(text, tuple(aliases), tuple(map(_all_of, alone)), _all_of(several))


def _all_of(parts: list[Node]) -> Node | None:
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else Logic("AND", tuple(parts))


@dataclass(frozen=True, slots=True)
class StreamNames:
    """What the names in a text over several streams stand for.  text, where: for messages."""

    text: str
    aliases: tuple[str, ...]
    schemas: tuple[pa.Schema, ...]
    where: str

    def resolve(self, qualifier: str | None, column: str) -> str:
        """The full name "alias.column" of a column as it was written."""
        whose = place(self.text, self.where)
        if qualifier is None:
            return f"{self._owner(column, whose)}.{column}"
        if qualifier not in self.aliases:
            near = difflib.get_close_matches(qualifier, self.aliases, n=1)
            hint = f"did you mean '{near[0]}.{column}'?" if near else f"its streams are {', '.join(self.aliases)}"
            raise UnknownStream(f"{whose}: there is no stream '{qualifier}' in this join; {hint}")
        schema = self.schemas[self.aliases.index(qualifier)]
        check_columns(schema, (column,), where=f"{whose}: stream '{qualifier}'")
        return f"{qualifier}.{column}"

    def _owner(self, column: str, whose: str) -> str:
        owners = [alias for alias, schema in zip(self.aliases, self.schemas, strict=True) if column in schema.names]
        if len(owners) == 1:
            return owners[0]
        if owners:
            raise ExpressionError(
                f"{whose}: '{column}' is a column of {' and '.join(owners)}; "
                f"write {' or '.join(f'{alias}.{column}' for alias in owners)}"
            )
        known = dict.fromkeys(name for schema in self.schemas for name in schema.names)
        check_columns(pa.schema([pa.field(name, pa.null()) for name in known]), (column,), where=whose)
        raise AssertionError("a column that no stream has was found")
