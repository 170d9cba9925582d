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
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nile.base.raw import check_columns
from nile.expressions.binding import bind
from nile.expressions.conditions import Condition
from nile.expressions.evaluate import evaluate_mask
from nile.expressions.reading import place, read_condition
from nile.expressions.tree import Constant, Logic, Lookup, Node, columns_of, conjuncts, parts_of, rename
from nile.sql.expression_text import expression_text, identifier
from nile.summaries.errors import ExpressionError, UnknownStream
from nile.summaries.heavy import pa, pc

__all__ = ["PairCondition", "StreamNames", "own_condition", "own_tree", "read_pair_condition", "taken_apart"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class PairCondition:
    """A condition over several streams, typed: what candidates are asked.

    text: as SQL; aliases: the streams' names in the question; several: parts of two streams or more, joined by AND.
    Columns inside are named "alias.column".
    """

    text: str
    aliases: tuple[str, ...]
    several: Node = field(compare=False, repr=False)

    def columns(self, stream: int) -> tuple[str, ...]:
        """The columns of a stream that candidates are asked for, each once."""
        prefix = f"{self.aliases[stream]}."
        return tuple(name.removeprefix(prefix) for name in columns_of(self.several) if name.startswith(prefix))

    @property
    def parts(self) -> int:
        """Columns, each as often as it is written, functions and comparisons."""
        return sum(not isinstance(part, Constant) for part in parts_of(self.several))

    def name_of(self, stream: int, column: str) -> str:
        """A column's name among the columns of candidates."""
        return f"{self.aliases[stream]}.{column}"

    def passing(self, candidates: pa.RecordBatch) -> Array:
        """Which candidates satisfy it: bool [n]; null does not.  Columns are named by `name_of`."""
        selected: Array = pc.fill_null(evaluate_mask(self.several, candidates), False).to_numpy(zero_copy_only=False)
        return selected


def read_pair_condition(
    text: str, aliases: Sequence[str], schemas: Sequence[pa.Schema], *, where: str
) -> tuple[tuple[Condition | None, ...], PairCondition | None]:
    """`text` as conditions over streams called `aliases`, whose columns `schemas` gives: see `taken_apart`.

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
    return taken_apart(bind(tree, pa.schema(fields), where=place(text, where)), aliases)


def taken_apart(tree: Node | None, aliases: Sequence[str]) -> tuple[tuple[Condition | None, ...], PairCondition | None]:
    """(of each stream the condition on it alone, what is asked of several) of a typed tree; None: nothing is.

    A tree is taken apart at its outermost ANDs; a part without columns is as true of one stream's tuples as of all.
    """
    alone: list[list[Node]] = [[] for _ in aliases]
    several: list[Node] = []
    for part in conjuncts(tree):
        used = {name.split(".", 1)[0] for name in columns_of(part)}
        if len(used) > 1:
            several.append(part)
        else:
            alone[aliases.index(used.pop()) if used else 0].append(part)
    own = tuple(own_condition(_all_of(alone[k]), name) if alone[k] else None for k, name in enumerate(aliases))
    if not several:
        return own, None
    both = _all_of(several)
    return own, PairCondition(expression_text(both, str), tuple(aliases), both)


def own_condition(tree: Node, alias: str) -> Condition:
    """A typed tree over columns "alias.column" as a condition on that stream's own columns."""
    own = own_tree(tree, alias)
    looks_up = any(isinstance(part, Lookup) for part in parts_of(own))
    return Condition(expression_text(own, identifier), columns_of(own), own, looks_up)


def own_tree(tree: Node, alias: str) -> Node:
    """A tree over columns "alias.column" over that stream's own columns."""
    return rename(tree, lambda column: replace(column, name=column.name.removeprefix(f"{alias}.")))


def _all_of(parts: list[Node]) -> Node:
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
