"""From a plan to operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from nile.exact.pipeline.above import Projection, Selection
from nile.exact.pipeline.counted import counts_alone
from nile.exact.pipeline.figures import Counted, Path, counted_leaf, sides
from nile.exact.pipeline.first import Ordering
from nile.exact.pipeline.graph import GraphJoining
from nile.exact.pipeline.join import Joining
from nile.exact.pipeline.outer import OuterJoining
from nile.exact.pipeline.over_window import distinct, grouping
from nile.exact.pipeline.schedule import Clock, Operator
from nile.exact.pipeline.sessions import Opening
from nile.exact.pipeline.setops import Bag, Expanding, UnionAll
from nile.exact.pipeline.sources.changing import Signed
from nile.exact.pipeline.sources.constrained import ConstrainedJoining
from nile.exact.pipeline.sources.incoming import Incoming, chain_of
from nile.exact.pipeline.sources.leaf import Stream
from nile.exact.pipeline.sources.part import Follower, Part
from nile.exact.pipeline.sources.partitioned import PartitionedStream
from nile.exact.pipeline.sources.relation import Relation
from nile.exact.pipeline.sources.sliding import SlidingStream
from nile.exact.pipeline.sources.stream_join import StreamJoining, fits
from nile.exact.pipeline.sources.stream_windows import Chain, Windows
from nile.exact.pipeline.stages import Stage
from nile.exact.pipeline.ticks import Closing, Hopping, Ticking
from nile.exact.pipeline.to_stream import Sampling, Streaming, WindowedStream
from nile.exact.pipeline.whole import Placing
from nile.exact.plan.algebra import (
    Changing,
    Distinct,
    Every,
    Expand,
    First,
    GraphJoin,
    Group,
    Hop,
    Intersect,
    Join,
    Minus,
    OnClose,
    Opened,
    Outer,
    Plan,
    Project,
    Rows,
    Sample,
    Scan,
    Select,
    Slide,
    Stored,
    ToStream,
    Unbounded,
    Union,
    Whole,
    Windowed,
    inputs_of,
)

__all__ = ["Built", "Reader", "build", "streams_of"]


@dataclass(frozen=True)
class Reader:
    """What whoever stands above wants of an operator: rows that come, rows that go, the contents at the end.

    once: of rows that come or go with one tuple, one with how many they are will do (`Delta.times`).
    """

    come: bool = True
    go: bool = True
    keep: bool = False
    once: bool = False


class Built:
    """Every operator of a pipeline, by what the driver does with it."""

    HELD: ClassVar = ("arrivals", "streams", "joins", "followers", "all")
    DERIVED: ClassVar = ("begins", "stages", "made", "_parts", "_windows")

    def __init__(self, parts: Mapping[int, Part] | None = None, windows: Windows | None = None) -> None:
        """parts: what is at work elsewhere already, by the identities of nodes; windows: the tuples of the one join of
        two streams, where others read them, too.
        """
        self.arrivals: list[Incoming] = []
        self.streams: list[Stream | StreamJoining | PartitionedStream | SlidingStream | Follower] = []
        self.joins: list[Joining | GraphJoining | OuterJoining | StreamJoining | ConstrainedJoining | Follower] = []
        self.followers: list[Follower] = []
        self.begins = False  # whether something holds before the first tuple
        self.all: list[Counted] = []  # inputs before what reads them
        self.stages: list[Stage] = []  # likewise
        self.made: dict[int, tuple[Reader, slice]] = {}
        """By the identity of a node: for whom it was made, and which of all operators it and those below are."""
        self._parts = parts or {}
        self._windows = windows

    @property
    def is_pushed(self) -> bool:
        """Whether all that streams bring is pushed, and none is made by operators."""
        pushed = {id(each) for each in self.arrivals}
        return not self.followers and all(
            isinstance(each, StreamJoining) or id(each.arrivals) in pushed for each in self.streams
        )

    def make(self, plan: Plan, clock: Clock, reader: Reader, path: Path = ()) -> Counted:
        """The operator of a node, with all below it."""
        known, below, begin = len(self.arrivals), len(self.stages), len(self.all)
        part = self._parts.get(id(plan))
        made = self._made(plan, clock, reader, path) if part is None else self._read(part, plan, path)
        self.all.append(made)
        self.made[id(plan)] = reader, slice(begin, len(self.all))
        inputs = [at for at in range(below, len(self.stages)) if self.stages[at].above is None]
        for at in inputs:
            self.stages[at].above = len(self.stages)
        arrivals = () if inputs else tuple(self.arrivals[known:])
        self.stages.append(Stage(made, tuple(self.stages[at].operator for at in inputs), tuple(inputs), arrivals))
        return made

    def _read(self, part: Part, plan: Plan, path: Path) -> Counted:
        """What reads a part that is at work elsewhere."""
        follower = Follower(part, plan, path)
        self.all += follower.below  # type: ignore[arg-type]
        self.arrivals += follower.arrivals  # type: ignore[arg-type]
        self.streams.append(follower)
        self.joins.append(follower)
        self.followers.append(follower)
        return Counted(follower, plan, path, follower.told)  # type: ignore[arg-type]  # its KIND is the part's

    def _made(self, plan: Plan, clock: Clock, reader: Reader, path: Path) -> Counted:
        base, above = chain_of(plan)
        if isinstance(base, Scan) and isinstance(base.window, Rows) and base.window.by:
            if above:
                return self._generic(plan, clock, reader, path)
            parted = PartitionedStream(clock, base)
            self.streams.append(parted)
            self.arrivals.append(parted.arrivals)
            return counted_leaf(parted, [base], parted.arrivals.counts, path)
        if isinstance(base, Scan) and isinstance(base.window, Slide):
            sliding = SlidingStream(clock, base, above)
            self.streams.append(sliding)
            self.arrivals.append(sliding.arrivals)
            return counted_leaf(sliding, [base, *above], sliding.arrivals.counts, path)
        if isinstance(base, Scan):
            stream = Stream(clock, base, above, keep=reader.keep, go=reader.go)
            self.streams.append(stream)
            self.arrivals.append(stream.arrivals)
            return counted_leaf(stream, [base, *above], stream.arrivals.counts, path)
        if isinstance(base, Stored):
            self.begins = True
            relation = Relation(clock, base.table, above)
            return counted_leaf(relation, [base, *above], relation.counts, path)
        if isinstance(plan, Changing):
            signed = Signed(plan)
            self.arrivals.append(signed.arrivals)
            self.all.append(Counted(signed, None, None))
            bag = Bag(clock, "union all", [signed], plan.schema)
            return Counted(bag, plan, path, (), signed.arrivals.counts)
        if isinstance(plan, Join) and plan.promises and (streams := _constrained(plan, clock, reader)) is not None:
            constrained = ConstrainedJoining(clock, plan, *streams)
            self.joins.append(constrained)
            self.arrivals += constrained.arrivals
            return Counted(constrained, plan, path, sides(constrained, path))
        if isinstance(plan, Join) and clock.negative and (streams := streams_of(plan)) is not None:
            joining = StreamJoining(
                clock, plan, *streams, come=reader.come, go=reader.go, once=reader.once, windows=self._windows
            )
            self.joins.append(joining)
            self.streams.append(joining)
            self.arrivals += joining.arrivals
            return Counted(joining, plan, path, sides(joining, path))
        if isinstance(plan, GraphJoin):
            graph = GraphJoining(clock, plan, go=reader.go, keep=reader.keep)
            self.joins.append(graph)
            self.arrivals += graph.arrivals
            return Counted(graph, plan, path, sides(graph, path))
        return self._generic(plan, clock, reader, path)

    def _generic(self, plan: Plan, clock: Clock, reader: Reader, path: Path) -> Counted:
        """An operator over those of its inputs."""
        below = (
            reader
            if isinstance(plan, Select | Project | Hop | Every) or (isinstance(plan, Union) and plan.all)
            else Reader(once=clock.negative and isinstance(plan, Group) and counts_alone(plan))
        )
        inputs = [self.make(each, clock, below, (*path, k)) for k, each in enumerate(inputs_of(plan))]
        return Counted(self._above(plan, clock, reader, inputs), plan, path, [each.figures for each in inputs])

    def _above(self, plan: Plan, clock: Clock, reader: Reader, inputs: list[Counted]) -> Operator:
        """The operator of a node over its inputs."""
        match plan:
            case Select():
                return Selection(plan, inputs[0], clock.threads)
            case Project():
                return Projection(plan, inputs[0])
            case Join():
                joining = Joining(clock, plan, *inputs, come=reader.come, go=reader.go, once=reader.once)
                self.joins.append(joining)
                return joining
            case Outer():
                outer = OuterJoining(clock, plan, *inputs)
                self.joins.append(outer)
                return outer
            case Group():
                self.begins = self.begins or not plan.by
                return grouping(clock, plan, inputs[0], wanted=reader.come)
            case Opened():
                return Opening(plan, inputs[0])
            case Whole():
                return Placing(clock, plan, inputs[0], wanted=reader.come or reader.go)
            case ToStream():
                return Streaming(clock, plan, inputs[0])
            case Sample():
                return Sampling(plan, inputs[0])
            case Windowed():
                windowed = WindowedStream(clock, plan, inputs[0], keep=reader.keep, go=reader.go)
                self.streams.append(windowed.stream)
                return windowed
            case Hop():
                return Hopping(clock, plan, inputs[0])
            case OnClose():
                return Closing(plan, inputs[0])
            case Every():
                return Ticking(plan, inputs[0])
            case First():
                return Ordering(clock, plan, inputs[0], wanted=reader.come or reader.go)
            case Distinct():
                return distinct(clock, plan, inputs[0], wanted=reader.come)
            case Expand():
                return Expanding(clock, plan, inputs[0])
            case Union() if plan.all:
                return UnionAll(clock, inputs, plan.schema)
            case Union() | Intersect() | Minus():
                kind = type(plan).__name__.lower() + (" all" if plan.all else "")
                return Bag(clock, kind, inputs, plan.schema, wanted=reader.come)
            case _:
                raise TypeError(plan)


def streams_of(plan: Join) -> tuple[Chain, Chain] | None:
    """Both inputs as chains over streams whose tuples leave in the order they came, if that is what they are."""
    chains = [(base, above) for base, above in map(chain_of, (plan.left, plan.right)) if isinstance(base, Scan)]
    if len(chains) < 2 or not all(fits(base) for base, _ in chains):
        return None
    return chains[0], chains[1]


def _constrained(plan: Join, clock: Clock, reader: Reader) -> tuple[Chain, Chain] | None:
    """Both inputs, where tuples may be forgotten: no pair ever goes, or nobody reads it."""
    streams = streams_of(plan)
    if streams is None or not clock.negative or reader.keep:
        return None
    endless = all(isinstance(base.window, Unbounded) for base, _ in streams)
    return streams if endless or not reader.go else None


def build(
    plan: Plan,
    clock: Clock,
    reader: Reader,
    parts: Mapping[int, Part] | None = None,
    windows: Windows | None = None,
) -> tuple[Counted, Built]:
    """The root operator, and all that the driver needs to know.  parts, windows: as of `Built`."""
    built = Built(parts, windows)
    return built.make(plan, clock, reader), built
