"""Which parts of a standing query's plan others may have, too: its topmost join or set operation, over live streams, or
without one its lowest GROUP BY or DISTINCT; and each GROUP BY and DISTINCT above it.

Two lowest parts are equal but for the columns that they read of the streams; one with the columns of both serves both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

__all__ = ["Fields", "Subplan", "fields_of_both", "subplans_of", "with_fields"]


Fields = Mapping[str, tuple[Field, ...]]
"""Of each leaf, by its alias, the columns that are read."""


@dataclass(frozen=True, slots=True)
class Subplan:
    """node: as bound, with the columns that this query reads; made: its algebra; reader: who reads what it makes.

    key: equal for those that one may stand for; tuples: equal for joins of two streams that read the same tuples, up to
    the lengths of their windows, None of other parts; algorithm: of window joins; over: what it reads, in words, None:
    it is the lowest.
    """

    node: Plan
    made: algebra.Plan
    reader: Reader
    key: tuple[Any, ...]
    tuples: tuple[Any, ...] | None
    algorithm: str
    over: str | None = None

    @property
    def fields(self) -> Fields:
        """The columns of its leaves."""
        return {leaf.alias: leaf.fields for leaf in leaves_of(self.node)}

    @property
    def what(self) -> str:
        """What it is, in a few words."""
        node = self.node
        told = {Outer: "outer join", Group: "GROUP BY", Distinct: "DISTINCT"}
        what = node.kind if isinstance(node, SetOperation) else told.get(type(node), "join")
        return what if self.over is None else f"{what} over the {self.over}"


def subplans_of(
    below: Plan, path: Path, made: Mapping[Path, algebra.Plan], pipeline: Pipeline, choice: Choice, read: object
) -> tuple[Subplan, ...]:
    """The parts of a plan whose top is at `path`, each within the next: those that others may have, if any.

    made: the algebra of each path; read: which streams, for the key.  A part whose rows leave by probing time, or that
    reads what is stored, is not shared.
    """
    chain = [(below, path)]
    while len(inputs_of(chain[-1][0])) == 1:
        node, at = chain[-1]
        chain.append((inputs_of(node)[0], (*at, 0)))
    parts: list[tuple[Plan, Path]] = [(node, at) for node, at in chain[::-1] if isinstance(node, Group | Distinct)]
    if isinstance(chain[-1][0], Join | Outer | SetOperation):
        parts.insert(0, chain[-1])
    leaves = leaves_of(below)
    if choice.scheduling != "nta" or not all(isinstance(leaf, Stream) and leaf.where is None for leaf in leaves):
        return ()
    if not all(leaf.fields for leaf in leaves):
        return ()
    found: list[Subplan] = []
    for node, at in parts:
        reader = pipeline.reader_of(made[at]) if at in made else None
        if reader is None:
            break
        found.append(_subplan(node, made[at], reader, choice.algorithm or "chain", read, found))
    return tuple(found)


def _subplan(
    node: Plan, made: algebra.Plan, reader: Reader, algorithm: str, read: object, below: Sequence[Subplan]
) -> Subplan:
    """A part over those `below` it."""
    over = below[-1].what if below else None
    if isinstance(node, Group | Distinct):  # which tell what goes, whoever asks
        reader = replace(reader, go=True)
    if not _is_wide(node):
        return Subplan(node, made, reader, (repr(node), algorithm, reader, read), None, algorithm, over)
    bare = with_fields(node, {leaf.alias: () for leaf in leaves_of(node)})
    tuples = (repr(_without_windows(bare)), read)
    return Subplan(node, made, reader, (repr(bare), algorithm, reader, read), tuples, algorithm)


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
