"""Selections WITH PREFERENCE over one stream: its columns taken for the tuples that were found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nile.answers.bound_selection import BoundSelection
from nile.answers.selection_answer import SelectionAnswer
from nile.execution.approximate.shape import Shape
from nile.execution.options import Options
from nile.execution.values import all_of
from nile.expressions.conditions import Condition, Value
from nile.expressions.tree import Constant, columns_of
from nile.operators.drive.live_selection import LiveSelection
from nile.operators.inputs.home import Home
from nile.operators.inputs.pair_conditions import own_condition, own_tree
from nile.operators.inputs.selecting import columns_beside, judged
from nile.preferences.budget import Budget
from nile.sql.columns import Field
from nile.sql.expression_text import expression_text
from nile.sql.plan import Filter, Query, Stream
from nile.sql.windows import is_plain
from nile.summaries.errors import ConfigError, NotYet
from nile.summaries.heavy import pa

__all__ = ["PreferredSelection", "bound_selection"]

Array = np.ndarray[Any, Any]
_NAME = "the query"
_EVERYTHING = Condition("true", (), Constant(True, "boolean"))


def bound_selection(query: Query, shape: Shape, options: Options) -> BoundSelection:
    """SELECT ... FROM stream WHERE condition WITH PREFERENCE kind column, bound.

    Raises NotYet for a window of rows, ConfigError for a preference that names no single column.
    """
    assert isinstance(shape.core, Stream)
    assert query.preference is not None
    stream, preference = shape.core, query.preference
    if not is_plain(stream.window):
        raise NotYet(
            "approximate selection: windows of ROWS, NOW and SLIDE have no operator yet; say WINDOW with a duration"
        )
    terms = {term.column for term in preference.terms}
    if len(terms) != 1:
        raise ConfigError(
            "WITH PREFERENCE: needed the one column whose values are summarised, for a selection; got "
            f"{', '.join(sorted(terms)) or 'none'}; write WITH PREFERENCE {preference.kind} column"
        )
    if preference.fade != 1.0:
        raise NotYet("approximate selection: FADE FACTOR has no operator yet; leave it out")
    options.refuse(("guide", "outlier_cap"), "a join; got a selection, which has none")
    term = preference.terms[0]
    tree = None if term.factor is None else own_tree(term.factor, stream.alias)
    worth = None if tree is None else Value(expression_text(tree, str), columns_of(tree), tree)
    condition = stream.where
    for step in shape.above[::-1]:
        if not isinstance(step, Filter):
            break
        condition = all_of(condition, step.condition)
    bound = BoundSelection(
        stream.name,
        terms.pop().removeprefix(f"{stream.alias}."),
        ((_NAME, _EVERYTHING if condition is None else own_condition(condition, stream.alias)),),
        window=stream.window,
        preference=preference.kind,
        promise=options.by or ("value" if term.by == "value" or worth is not None else "share"),
        worth=worth,
        pace=options.pace(),
        **options.given("speed"),
    )
    return bound.using(**options.given("method", "costs", "seed", "output"), **dict(options.using))


class PreferredSelection:
    """A selection of one stream, and what the statement takes of the tuples found."""

    def __init__(self, home: Home, query: Query, shape: Shape, budget: Budget | None, options: Options) -> None:
        """Raises what `bound_selection` and a plan raise."""
        assert isinstance(shape.core, Stream)
        self._home = home
        self._stream = shape.core
        self._budget = budget
        self.bound = bound_selection(query, shape, options)
        self.bound.plan(budget)

    def explain(self) -> str:
        """What it will do, in words."""
        told = self.bound.explain(self._home, self._budget)
        if self._budget is not None or self.bound.preference == "weighted":
            return told
        order = "fewest" if self.bound.preference == "asc" else "most"
        worth = (
            f"adds up to {'least' if order == 'fewest' else order}" if self.bound.promise == "value" else f"has {order}"
        )
        return f"{told}\n  all tuples, those of the value of {self.bound.on} that {worth} first"

    def run(self) -> SelectionAnswer:
        """Read the stream and prepare the answer."""
        own = tuple(field.name.removeprefix(f"{self._stream.alias}.") for field in self._stream.fields)
        return self.bound.answer(self._home, self._budget, own)

    def found(self, answer: SelectionAnswer) -> Iterator[pa.RecordBatch]:
        """The tuples found, with the stream's columns: by the preference, where no budget cuts the answer short."""
        held = answer.loaded.carried
        for batch in answer.batches() if self._budget is not None else answer.in_order():
            at = batch.column("ordinal")
            arrays, names = [], []
            for field in self._stream.fields:
                name = field.name.removeprefix(f"{self._stream.alias}.")
                if name == self.bound.on:
                    column = batch.column(name)
                else:
                    assert held is not None  # a batch of tuples found means that tuples were read
                    column = held.column(name).take(at)
                arrays.append(column if column.type == field.type else column.cast(field.type))
                names.append(field.name)
            if not arrays:
                arrays, names = [at], ["_"]
            yield pa.RecordBatch.from_arrays(arrays, names=names)

    def standing(self) -> Stream:
        """The stream with every column that finding its tuples takes, and no condition of its own."""
        stream = self._stream
        named = {field.name for field in stream.fields}
        schema = self._home.schema(stream.name)
        more = [f"{stream.alias}.{name}" for name in self.reads if f"{stream.alias}.{name}" not in named]
        fields = (Field(name, schema.field(name.removeprefix(f"{stream.alias}.")).type) for name in more)
        return replace(stream, fields=(*stream.fields, *fields), where=None)

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that the preference and the condition read, the preference's first."""
        return (self.bound.on, *columns_beside(self.bound.on, self.bound.predicates))

    def live(self) -> LiveSelection:
        """The operator over a live stream.  Raises NotYet for a plan that has none."""
        (_, condition), on = self.bound.predicates[0], self.bound.on
        return LiveSelection(
            self.bound.plan(self._budget), lambda rows: judged(rows, on, condition), mixed=len(self.reads) > 1
        )

    def taken(self, held: Sequence[Mapping[str, Any]], ordinals: list[Array], weight: Array) -> pa.RecordBatch:
        """Columns of some tuples.  held: the stream's columns by name; ordinals: into these."""
        (columns,), (at,) = held, ordinals
        rows, arrays, names = pa.array(at), [], []
        for field in self._stream.fields:
            column = columns[field.name.removeprefix(f"{self._stream.alias}.")].take(rows)
            column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            arrays.append(column if column.type == field.type else column.cast(field.type))
            names.append(field.name)
        if not arrays:
            arrays, names = [pa.array(weight)], ["_"]
        return pa.RecordBatch.from_arrays(arrays, names=names)

    @property
    def aliases(self) -> tuple[str, ...]:
        """What the statement calls the stream."""
        return (self._stream.alias,)
