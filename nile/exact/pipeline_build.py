"""A plan becomes operators."""

from __future__ import annotations

from dataclasses import dataclass

from nile.exact.algebra import (
    Distinct,
    GraphJoin,
    Group,
    Intersect,
    Join,
    Minus,
    Plan,
    Project,
    Scan,
    Select,
    Stored,
    Union,
)
from nile.exact.group import Grouping
from nile.exact.pipeline_above import Projection, Selection
from nile.exact.pipeline_graph import GraphJoining
from nile.exact.pipeline_join import Joining
from nile.exact.pipeline_leaf import Arrivals, Relation, Stream, chain_of
from nile.exact.pipeline_streams import Chain, StreamJoining, fits
from nile.exact.schedule import Clock, Operator
from nile.exact.setops import Bag, UnionAll

__all__ = ["Built", "Reader", "build"]


@dataclass(frozen=True)
class Reader:
    """What whoever stands above wants of an operator: rows that come, rows that go, the contents at the end."""

    come: bool = True
    go: bool = True
    keep: bool = False


class Built:
    """Every operator of a pipeline, by what the driver does with it."""

    def __init__(self) -> None:
        self.arrivals: list[Arrivals] = []
        self.streams: list[Stream | StreamJoining] = []
        self.joins: list[Joining | GraphJoining | StreamJoining] = []
        self.begins = False  # whether something holds before the first tuple

    def make(self, plan: Plan, clock: Clock, reader: Reader) -> Operator:
        """The operator of a node, with all below it."""
        base, above = chain_of(plan)
        if isinstance(base, Scan):
            stream = Stream(clock, base, above, keep=reader.keep, go=reader.go)
            self.streams.append(stream)
            self.arrivals.append(stream.arrivals)
            return stream
        if isinstance(base, Stored):
            self.begins = True
            return Relation(clock, base.table, above)
        whole = Reader()
        operator: Operator
        match plan:
            case Select():
                return Selection(plan, self.make(plan.input, clock, reader))
            case Project():
                return Projection(plan, self.make(plan.input, clock, reader))
            case Join() if clock.negative and (streams := _streams(plan)) is not None:
                operator = StreamJoining(clock, plan, *streams, come=reader.come, go=reader.go)
                self.joins.append(operator)
                self.streams.append(operator)
                self.arrivals += operator.arrivals
            case Join():
                left, right = (self.make(each, clock, whole) for each in (plan.left, plan.right))
                operator = Joining(clock, plan, left, right, come=reader.come, go=reader.go)
                self.joins.append(operator)
            case GraphJoin():
                operator = GraphJoining(clock, plan, go=reader.go, keep=reader.keep)
                self.joins.append(operator)
                self.arrivals += operator.arrivals
            case Group():
                self.begins = self.begins or not plan.by
                operator = Grouping(clock, plan, self.make(plan.input, clock, whole), wanted=reader.come)
            case Distinct():
                below = self.make(plan.input, clock, whole)
                operator = Bag(clock, "distinct", [below], plan.schema, wanted=reader.come)
            case Union() if plan.all:
                operator = UnionAll(
                    clock, [self.make(each, clock, reader) for each in (plan.left, plan.right)], plan.schema
                )
            case Union() | Intersect() | Minus():
                kind = type(plan).__name__.lower() + (" all" if plan.all else "")
                inputs = [self.make(each, clock, whole) for each in (plan.left, plan.right)]
                operator = Bag(clock, kind, inputs, plan.schema, wanted=reader.come)
            case _:
                raise TypeError(plan)
        return operator


def _streams(plan: Join) -> tuple[Chain, Chain] | None:
    """Both inputs as chains over streams whose tuples leave in the order they came, if that is what they are."""
    chains = [(base, above) for base, above in map(chain_of, (plan.left, plan.right)) if isinstance(base, Scan)]
    if len(chains) < 2 or not all(fits(base) for base, _ in chains):
        return None
    return chains[0], chains[1]


def build(plan: Plan, clock: Clock, reader: Reader) -> tuple[Operator, Built]:
    """The root operator, and all that the driver needs to know."""
    built = Built()
    return built.make(plan, clock, reader), built
