"""Conditions over a stream's columns: which rows belong to it (`where`).

What may be written: comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, ILIKE, IS [NOT] NULL, CASE, + - * / %, ||,
CAST and TRY_CAST (alike: null where impossible), lower, upper, length, substring, abs, round, floor, ceil, sqrt,
coalesce, nullif, greatest, least, extract(year|month|day|hour|minute|second FROM ...) and those as functions,
date_trunc, and literals: numbers, text, TRUE, FALSE, NULL, TIMESTAMP '...', DATE '...', INTERVAL '1 hour'. Names of
columns are case-sensitive; names with spaces go in double quotes. Nothing in a condition can reach a file, the
network or code.

How it is built: `reading` (text to tree), `binding` (types), `evaluate` (Arrow), `spark_text` (Spark SQL).
The semantics are SQL's three-valued logic; where engines differ they are pinned in `evaluate`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from nile.expressions.binding import bind, bind_value
from nile.expressions.evaluate import column_as_is, evaluate_mask, evaluate_value
from nile.expressions.reading import Resolve, place, read_condition
from nile.expressions.spark_text import needs_types, spark_text
from nile.expressions.tree import Kind, Node, columns_of
from nile.summaries.errors import ExpressionError
from nile.summaries.heavy import pa


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that has been read and found harmless. Equal texts are equal conditions.

    `text`: as it was written. `columns`: the names it uses, each once, in order of appearance. `looks_up`: whether it
    looks stored rows up, which one text finds elsewhere in each query.
    """

    text: str
    columns: tuple[str, ...] = field(compare=False)
    tree: Node = field(compare=False, repr=False)
    looks_up: bool = field(default=False, repr=False)

    def check(self, schema: pa.Schema, *, where: str) -> None:
        """Whether `schema` has the columns, with types that the condition can use. `where` is for messages.

        Raises UnknownColumn (with the nearest name) or ExpressionError.
        """
        bind(self.tree, schema, where=place(self.text, where))

    def bound(self, schema: pa.Schema) -> Node:
        """The tree with a kind on every node. Raises as `check`."""
        return _bound(self, schema)

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Which rows of `batch` satisfy the condition: true, false or null; null does not select.

        Vectorised; cost rows x operators. Raises as `check`.
        """
        return evaluate_mask(_bound(self, batch.schema), batch)

    def spark(self, schema: pa.Schema | None = None) -> str:
        """The condition as Spark SQL with the same meaning, for a session in UTC, ANSI mode or not.

        `schema` is the Arrow schema of the data. Comparisons, LIKE and the text functions do without it;
        arithmetic, casts, abs and coalesce depend on the types and need it. Times compared with text that
        carries a zone need it too, to mean the same on columns without zone. Raises as `check`.
        """
        if schema is not None:
            return spark_text(_bound(self, schema))
        if needs_types(self.tree):
            raise ExpressionError(
                f"{place(self.text, 'where')}: its Spark form depends on the types of columns; give spark() the schema"
            )
        return spark_text(self.tree)


def parse_condition(text: str, *, where: str) -> Condition:
    """`text` as a Condition; `where` says in messages whose it is ("where of stream 'left'").

    At most 64 KiB of text and 64 levels. Raises ExpressionError for anything outside the allowed expressions.
    """
    tree = read_condition(text, where=where)
    return Condition(text, columns_of(tree), tree)


@dataclass(frozen=True, slots=True)
class Value:
    """An expression with a value, such as `price * quantity`, made of what conditions are made of.

    `text`, `columns`, `tree`: as of a Condition.
    """

    text: str
    columns: tuple[str, ...] = field(compare=False)
    tree: Node = field(compare=False, repr=False)

    def kind(self, schema: pa.Schema, *, where: str) -> Kind:
        """What the value is over such columns. Raises UnknownColumn (with the nearest name) or ExpressionError."""
        return self.bound(schema, where=where).kind

    def bound(self, schema: pa.Schema, *, where: str) -> Node:
        """The tree with a kind on every node. Raises as `kind`."""
        return bind_value(self.tree, schema, where=place(self.text, where))

    def of(self, batch: pa.RecordBatch, *, where: str) -> pa.Array:
        """The value for each row, null where there is none. Vectorised; raises as `kind`."""
        return evaluate_value(self.bound(batch.schema, where=where), batch)

    def column_of(self, batch: pa.RecordBatch, *, where: str) -> pa.Array | None:
        """What is told apart or put in order and not computed with, where it is not what `of` gives: `column_as_is`."""
        return column_as_is(self.bound(batch.schema, where=where), batch)

    def key_of(self, batch: pa.RecordBatch, *, where: str) -> pa.Array:
        """As `of`, but what is told apart by itself."""
        column = self.column_of(batch, where=where)
        return self.of(batch, where=where) if column is None else column


def parse_value(text: str, *, where: str, resolve: Resolve | None = None) -> Value:
    """`text` as a Value, within the limits of `parse_condition`; resolve: as of `read_condition`.

    Raises ExpressionError and what `resolve` raises.
    """
    tree = read_condition(text, where=where, resolve=resolve)
    return Value(text, columns_of(tree), tree)


def _bound(condition: Condition, schema: pa.Schema) -> Node:
    if condition.looks_up:
        return bind(condition.tree, schema, where=place(condition.text, "where"))
    return _bound_of_text(condition, schema)


@lru_cache(maxsize=64)
def _bound_of_text(condition: Condition, schema: pa.Schema) -> Node:
    return bind(condition.tree, schema, where=place(condition.text, "where"))
