"""Which part of a standing query's plan others may have, too: its topmost join or set operation, over live streams, or
without one its lowest GROUP BY or DISTINCT.

Two parts are equal but for the columns that they read of the streams; one with the columns of both serves both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from nile.exact.pipeline.build import Reader
from nile.exact.pipeline.figures import Path
from nile.exact.pipeline.pipeline import Pipeline
from nile.exact.plan import algebra
from nile.execution.choice import Choice
from nile.sql.plan import (
    Distinct,
    Field,
    Filter,
    Group,
    Join,
    Outer,
    Plan,
    SetOperation,
    Stream,
    inputs_of,
    leaves_of,
    map_inputs,
)

__all__ = ["Fields", "Subplan", "fields_of_both", "subplan_of", "with_fields"]


Fields = Mapping[str, tuple[Field, ...]]
"""Of each leaf, by its alias, the columns that are read."""


@dataclass(frozen=True, slots=True)
class Subplan:
    """node: as bound, with the columns that this query reads; made: its algebra; reader: who reads what it makes.

    key: equal for those that one may stand for; tuples: equal for joins of two streams that read the same tuples, up to
    the lengths of their windows, None of other parts; algorithm: of window joins.
    """

    node: Plan
    made: algebra.Plan
    reader: Reader
    key: tuple[Any, ...]
    tuples: tuple[Any, ...] | None
    algorithm: str

    @property
    def fields(self) -> Fields:
        """The columns of its leaves."""
        return {leaf.alias: leaf.fields for leaf in leaves_of(self.node)}

    @property
    def what(self) -> str:
        """What it is, in a word or two."""
        node = self.node
        told = {Outer: "outer join", Group: "GROUP BY", Distinct: "DISTINCT"}
        return node.kind if isinstance(node, SetOperation) else told.get(type(node), "join")


def subplan_of(
    below: Plan, path: Path, made: Mapping[Path, algebra.Plan], pipeline: Pipeline, choice: Choice, read: object
) -> Subplan | None:
    """The part of a plan whose top is at `path`; None: nothing that others may have.

    made: the algebra of each path; read: which streams, for the key.  A part whose rows leave by probing time, or that
    reads what is stored, is not shared.
    """
    node, at, lowest = below, path, (below, path)
    while len(inputs_of(node)) == 1:
        lowest = (node, at) if isinstance(node, Group | Distinct) else lowest
        node, at = inputs_of(node)[0], (*at, 0)
    if not isinstance(node, Join | Outer | SetOperation):
        node, at = lowest
    if (
        choice.scheduling != "nta"
        or not isinstance(node, Join | Outer | SetOperation | Group | Distinct)
        or at not in made
    ):
        return None
    if not all(isinstance(leaf, Stream) and leaf.where is None and leaf.fields for leaf in leaves_of(node)):
        return None
    if (reader := pipeline.reader_of(made[at])) is None:
        return None
    algorithm = choice.algorithm or "chain"
    if isinstance(node, Group | Distinct):  # which tell what goes, whoever asks
        reader = replace(reader, go=True)
    if not _is_wide(node):
        return Subplan(node, made[at], reader, (repr(node), algorithm, reader, read), None, algorithm)
    bare = with_fields(node, {leaf.alias: () for leaf in leaves_of(node)})
    tuples = (repr(_without_windows(bare)), read)
    return Subplan(node, made[at], reader, (repr(bare), algorithm, reader, read), tuples, algorithm)


def with_fields(node: Plan, fields: Fields) -> Plan:
    """A part with other columns of its leaves."""
    if isinstance(node, Stream):
        return replace(node, fields=fields[node.alias])
    return map_inputs(node, lambda each: with_fields(each, fields))


def fields_of_both(one: Fields, other: Fields) -> Fields:
    """The columns of both, in an order that depends on nothing but which they are."""
    return {alias: tuple(sorted({*own, *other[alias]}, key=lambda field: field.name)) for alias, own in one.items()}


def _is_wide(node: Plan) -> bool:
    """Whether what comes out does not depend on further columns: tuples of two streams, each by itself, in order."""
    if not isinstance(node, Join) or node.constraints or len(node.inputs) != 2:
        return False
    leaves = [each.input if isinstance(each, Filter) else each for each in node.inputs]
    return all(isinstance(leaf, Stream) and isinstance(leaf.window, int | None) for leaf in leaves)


def _without_windows(node: Plan) -> Plan:
    """A join without what does not say which tuples it reads: how long they stay, and what is true of its pairs."""
    if isinstance(node, Stream):
        return replace(node, window=None)
    node = replace(node, condition=None) if isinstance(node, Join) else node
    return map_inputs(node, _without_windows)
