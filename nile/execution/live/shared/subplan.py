"""Which part of a standing query's plan others may have, too: its topmost join or set operation, over live streams.

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
from nile.sql.plan import Field, Filter, Join, Outer, Plan, SetOperation, Stream, inputs_of, leaves_of, map_inputs

__all__ = ["Subplan", "subplan_of", "union_of"]


@dataclass(frozen=True, slots=True)
class Subplan:
    """node: as bound, with the columns that this query reads; made: its algebra; reader: who reads what it makes.

    key: equal for those that one may stand for.
    """

    node: Plan
    made: algebra.Plan
    reader: Reader
    key: tuple[Any, ...]

    @property
    def what(self) -> str:
        """What it is, in a word or two."""
        node = self.node
        return node.kind if isinstance(node, SetOperation) else "outer join" if isinstance(node, Outer) else "join"


def subplan_of(
    below: Plan, path: Path, made: Mapping[Path, algebra.Plan], pipeline: Pipeline, choice: Choice, read: object
) -> Subplan | None:
    """The part of a plan whose top is at `path`; None: nothing that others may have.

    made: the algebra of each path; read: which streams, for the key.  A part whose rows leave by probing time, or that
    reads what is stored, is not shared.
    """
    node, at = below, path
    while not isinstance(node, Join | Outer | SetOperation | Stream) and len(inputs_of(node)) == 1:
        node, at = inputs_of(node)[0], (*at, 0)
    if choice.scheduling != "nta" or not isinstance(node, Join | Outer | SetOperation) or at not in made:
        return None
    if not all(isinstance(leaf, Stream) and leaf.where is None and leaf.fields for leaf in leaves_of(node)):
        return None
    if (reader := pipeline.reader_of(made[at])) is None:
        return None
    same = _without_columns(node) if _is_wide(node) else node
    return Subplan(node, made[at], reader, (repr(same), choice.algorithm, reader, read))


def union_of(one: Plan, other: Plan) -> Plan:
    """A part that reads the columns of both of two that are equal but for these."""
    if isinstance(one, Stream) and isinstance(other, Stream):
        return replace(one, fields=_both(one.fields, other.fields))
    pairs = iter(zip(inputs_of(one), inputs_of(other), strict=True))
    return map_inputs(one, lambda _: union_of(*next(pairs)))


def _both(one: tuple[Field, ...], other: tuple[Field, ...]) -> tuple[Field, ...]:
    """Fields of both, in an order that depends on nothing but which they are, so that each is a part of it."""
    return tuple(sorted({*one, *other}, key=lambda field: field.name))


def _is_wide(node: Plan) -> bool:
    """Whether what comes out does not depend on further columns: tuples of two streams, each by itself, in order."""
    if not isinstance(node, Join) or node.constraints or len(node.inputs) != 2:
        return False
    leaves = [each.input if isinstance(each, Filter) else each for each in node.inputs]
    return all(isinstance(leaf, Stream) and isinstance(leaf.window, int | None) for leaf in leaves)


def _without_columns(node: Plan) -> Plan:
    return replace(node, fields=()) if isinstance(node, Stream) else map_inputs(node, _without_columns)
