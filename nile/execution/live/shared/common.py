"""Parts of several standing plans at work once, and what they hold of streams once, and how plans come to read them.

Equal parts are one (`Common`).  Joins of two streams by one key read the same tuples (`Family`), whatever their
windows, conditions and readers: what a window holds are the newest of all that any of them holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.exact.pipeline.build import build, streams_of
from nile.exact.pipeline.schedule import Clock
from nile.exact.pipeline.sources.part import Part, narrowed
from nile.exact.pipeline.sources.stream_windows import Windows
from nile.exact.plan import algebra
from nile.exact.state.held import Held, State
from nile.exact.state.words import Encoder
from nile.execution.exact.physical import Compiler
from nile.execution.live.shared.likeness import same
from nile.execution.live.shared.subplan import Fields, Subplan, fields_of_both, with_fields
from nile.execution.reading import Naming
from nile.execution.values import schema_of
from nile.sql.plan import Relation, Stream, leaves_of
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from nile.execution.live.running import Running

__all__ = ["Common", "Family", "could_share", "is_alike", "parts_of", "readers_of", "share"]


@dataclass(eq=False)
class Common:
    """A part at work once.  like: one of those it stands for; plans: those that read it, of its family."""

    like: Subplan
    part: Part
    family: Family
    plans: list[Running]

    @property
    def memory(self) -> int:
        """Bytes of its state, without what its family has together."""
        return int(self.part.root.memory) - self.family.memory

    def join(self, plan: Running) -> None:
        """One plan more, that has seen what the others have."""
        self.plans.append(plan)
        self.family.seen[id(plan)] = dict(self.family.came)

    def leave(self, plan: Running) -> None:
        """One less; without any the part ends."""
        self.plans.remove(plan)
        del self.family.seen[id(plan)]
        if not self.plans:
            self.family.commons.remove(self)
            if self.family.windows is not None:
                self.part.end()

    def arrived(self, plan: Running, name: str, ts: Any, batch: Any) -> None:
        """Tuples that come to one of its plans, the same to all of its family: the first one brings them.

        batch: all columns.
        """
        family, n = self.family, ts.shape[0]
        seen = family.seen[id(plan)]
        if n and seen[name] == family.came[name]:
            for leaf in family.leaves:
                if leaf.name == name:
                    self.part.push(leaf.alias, ts, family.naming.named(leaf, batch))
            family.came[name] += n
        seen[name] += n


class Family:
    """Parts that read the same tuples, or one part.  fields: the columns that any of them reads."""

    def __init__(self, like: Subplan, tuples: _Tuples | None, done: int, threads: int | None) -> None:
        """like: one of the parts; tuples: of joins of two streams, what any of them needs."""
        self.fields = like.fields if tuples is None else tuples.fields
        self.commons: list[Common] = []
        self.leaves = [leaf for leaf in leaves_of(with_fields(like.node, self.fields)) if isinstance(leaf, Stream)]
        self.naming = Naming()
        self.came = {leaf.name: 0 for leaf in self.leaves}
        self.seen: dict[int, dict[str, int]] = {}
        """How many tuples each of its plans has brought, or would have."""
        self.threads = threads
        self.windows: Windows | None = None
        self._since: dict[str, int] = {}
        """By column from which tuple on it is known: before, none of its parts reads it."""
        if tuples is not None:
            (join,) = [each for each in algebra.walk(self._algebra(like)) if isinstance(each, algebra.Join)]
            chains = streams_of(join)
            assert chains is not None
            self.windows = Windows(Clock(threads=threads), join, *chains)
            held = Held(tuples.state, "tuples of a join")
            self.windows.restore(held.parts("arrivals", 2), held.parts("windows", 2), done)
            for ring in self.windows.rings:
                self._since |= {name: ring.newest - tuples.known[name] for name in ring.schema.names}

    def add(self, like: Subplan, states: Sequence[State], done: int) -> Common:
        """One part more.  states: of its operators, after the instant `done`."""
        part = Part(*build(self._algebra(like), Clock(threads=self.threads), like.reader, windows=self.windows))
        part.restore(states, done)
        self.commons.append(Common(like, part, self, []))
        return self.commons[-1]

    def _algebra(self, like: Subplan) -> algebra.Plan:
        node = with_fields(like.node, self.fields)
        return Compiler(lambda leaf: schema_of(leaf.fields), _nothing_stored, like.algorithm).plan(node)

    def tuples(self) -> _Tuples | None:
        """What is held of the streams; None: its one part is no join of two."""
        if self.windows is None:
            return None
        known = {
            name: ring.newest - max(ring.oldest, self._since[name])
            for ring in self.windows.rings
            for name in ring.schema.names
        }
        return _Tuples(self.windows.capture(), self.fields, known)

    @property
    def plans(self) -> list[Running]:
        """All that read any of its parts."""
        return [plan for common in self.commons for plan in common.plans]

    @property
    def memory(self) -> int:
        """Bytes of what its parts have together."""
        return 0 if self.windows is None else self.windows.memory


@dataclass(eq=False)
class _Tuples:
    """What joins of two streams hold of these.  state: as of one whose windows hold all of it; fields: the columns.

    known: of how many of the newest tuples each column is known; of others it is null.
    """

    state: State
    fields: Fields
    known: dict[str, int]

    def within(self, other: _Tuples) -> bool:
        """Whether another one holds all of it."""
        pairs = zip(self.state["windows"], other.state["windows"], strict=True)
        long = all(mine["ts"].shape[0] <= theirs["ts"].shape[0] for mine, theirs in pairs)
        return long and all(n <= other.known.get(name, -1) for name, n in self.known.items())

    def is_in_line_with(self, other: _Tuples) -> bool:
        """Whether tuples that both hold are surely in one order, whatever was taken back: no two of one time are alike.

        After tuples were taken back, equal ones may stand in another order in each.
        """
        for mine, theirs in zip(self.state["windows"], other.state["windows"], strict=True):
            n = min(mine["ts"].shape[0], theirs["ts"].shape[0])
            both = [name for name in mine["rows"].schema.names if min(self.known[name], other.known.get(name, -1)) >= n]
            (ts, rows), (same_ts, same_rows) = ((each["ts"], each["rows"].select(both)) for each in (mine, theirs))
            ts, rows = ts[ts.shape[0] - n :], rows.slice(rows.num_rows - n)
            if (ts != same_ts[same_ts.shape[0] - n :]).any() or not rows.equals(
                same_rows.slice(same_rows.num_rows - n)
            ):
                return False
            words = Encoder(rows.schema.types, exact=True).encode(rows.columns, n)
            if np.unique(np.column_stack([ts, words]), axis=0).shape[0] < n:
                return False
        return True

    def merged(self, other: _Tuples) -> _Tuples:
        """What is in either, where both are equal in what is in both."""
        arrivals, windows = [], []
        for mine, theirs in zip(self.state["arrivals"], other.state["arrivals"], strict=True):
            columns = {**_by_name(mine["rows"]), **_by_name(theirs["rows"])}
            arrivals.append({**mine, "rows": _batch(columns)})
        for mine, theirs in zip(self.state["windows"], other.state["windows"], strict=True):
            longer = max(mine, theirs, key=lambda each: each["ts"].shape[0])
            columns = {}
            for tuples, window in ((self, mine), (other, theirs)):
                for name, column in _by_name(window["rows"]).items():
                    known = column.slice(len(column) - tuples.known[name])
                    if name not in columns or len(columns[name]) < len(known):
                        columns[name] = known
            n = longer["ts"].shape[0]
            padded = {
                name: pa.concat_arrays([pa.nulls(n - len(each), each.type), each]) for name, each in columns.items()
            }
            windows.append({**longer, "rows": _batch(padded)})
        known = {name: max(self.known.get(name, 0), other.known.get(name, 0)) for name in {*self.known, *other.known}}
        state = {**self.state, "arrivals": arrivals, "windows": windows}
        return _Tuples(state, fields_of_both(self.fields, other.fields), known)


@dataclass(eq=False)
class _Side:
    """One of two plans, and all that share with it.  states: of the operators of its own part."""

    plan: Running
    like: Subplan
    family: Family | None
    states: list[State]

    @staticmethod
    def of(plan: Running) -> _Side:
        """Cost: O(state)."""
        assert plan.subplan is not None
        if plan.common is None:
            return _Side(plan, plan.subplan, None, plan.pipeline.capture_part(plan.subplan.made))
        return _Side(plan, plan.subplan, plan.common.family, plan.common.part.capture())

    @property
    def takes_back(self) -> bool:
        """Whether tuples that a join of two streams holds are to be taken back, which it can while they are its own."""
        return self.like.tuples is not None and any("back" in each for each in self.states[0]["holds"]["arrivals"])

    @cached_property
    def tuples(self) -> _Tuples | None:
        """What any of all its parts needs; None of a part that is no join of two streams."""
        if self.family is not None:
            return self.family.tuples()
        if self.like.tuples is None:
            return None
        state = self.states[0]["holds"]
        known = {name: each["ts"].shape[0] for each in state["windows"] for name in each["rows"].schema.names}
        return _Tuples(state, self.like.fields, known)

    def groups(self) -> list[tuple[Subplan, list[State], list[Running]]]:
        """Each part: one like it, the states of its operators, the plans that read it."""
        if self.family is None:
            return [(self.like, self.states, [self.plan])]
        return [(each.like, each.part.capture(), list(each.plans)) for each in self.family.commons]

    def is_in_line_with(self, other: _Side) -> bool:
        """Whether what another one holds of streams surely stands in the same order."""
        return self.tuples is None or other.tuples is None or self.tuples.is_in_line_with(other.tuples)

    def holds(self, other: _Side) -> bool:
        """Whether it has a family with all that another side needs."""
        if self.family is None or self.tuples is None or other.tuples is None:
            return self.family is not None
        return other.tuples.within(self.tuples)


def share(mine: Running, theirs: Running) -> Family | None:
    """Have two plans, and all that share with them, read the same; None: they cannot.

    That is a part which runs once, if theirs are equal and in equal states; else the tuples that joins of two streams
    hold, if those are equal that are in the windows of both, as the newest of the longer one's are: so one that is
    asked later need not wait.  Counts, and columns that only one of them reads, may differ.
    Cost: O(1) where they have come to different instants, else O(state).
    """
    if not (_may(mine) and _may(theirs)) or mine.pipeline.reached != theirs.pipeline.reached:
        return None
    one, other = _Side.of(theirs), _Side.of(mine)
    if one.takes_back or other.takes_back:
        return None
    names = None if one.like.tuples is None else sorted(_columns(one.like.fields) & _columns(other.like.fields))
    equal = one.like.key == other.like.key and _equal(one.states, other.states, names)
    if not equal and not _read_the_same(one, other, names):
        return None
    alone = one.family is other.family is None and one.like.fields == other.like.fields
    if not alone and (_mended(mine) or _mended(theirs)) and not one.is_in_line_with(other):
        return None
    family = one.family
    if family is not None and family is other.family:
        moving, target = [(other.like, other.states, _plans(mine))], theirs.common
    else:
        if not one.holds(other) and other.holds(one):
            one, other = other, one
        moving, family, target = other.groups(), one.family, one.plan.common
        if family is None or not one.holds(other):
            tuples = None if one.tuples is None or other.tuples is None else one.tuples.merged(other.tuples)
            family = Family(one.like, tuples, theirs.stages.done, theirs.threads)
            moving, target = [*one.groups(), *moving], None
    for like, states, plans in moving:
        alike = equal and (mine in plans or theirs in plans)
        common = target if alike and target is not None else family.add(like, states, theirs.stages.done)
        target = common if alike else target
        for plan in plans:
            plan.run_on(common)
    return family


def is_alike(mine: Running, theirs: Running) -> bool:
    """Whether two plans have equal parts."""
    return mine.subplan is not None and theirs.subplan is not None and mine.subplan.key == theirs.subplan.key


def could_share(mine: Running, theirs: Running) -> bool:
    """Whether two plans do not share all that they could, once their states allow it."""
    if mine.subplan is None or theirs.subplan is None:
        return False
    if is_alike(mine, theirs):
        return mine.common is None or mine.common is not theirs.common
    tuples = mine.subplan.tuples
    apart = mine.common is None or theirs.common is None or mine.common.family is not theirs.common.family
    return apart and tuples is not None and tuples == theirs.subplan.tuples


def parts_of(plans: Sequence[Running]) -> list[tuple[int, list[Running]]]:
    """(bytes, those that have them in common) of each part of plans, of each above, and of tuples that several read."""
    commons = {id(plan.common): plan.common for plan in plans if plan.common is not None}
    families = {id(each.family): each.family for each in commons.values() if each.family.windows is not None}
    nested = {id(each): each for plan in plans for each in plan.nested}
    return [(each.memory, each.plans) for some in (commons, nested, families) for each in some.values()]


def readers_of(plans: Sequence[Running]) -> tuple[Any, ...]:
    """The standing queries that read any of some plans."""
    return tuple(one for plan in plans for one in plan.readers)


def _may(plan: Running) -> bool:
    """Whether all readers have taken all there was, nothing waits, and it has begun."""
    level = all(each._turn == plan.turn for each in plan.readers)
    pipeline = plan.pipeline
    return level and not pipeline.waits and not pipeline.deferred and plan.gate is None and pipeline.has_begun


def _plans(plan: Running) -> list[Running]:
    """It and all that read the same part."""
    return [plan] if plan.common is None else list(plan.common.plans)


def _mended(plan: Running) -> bool:
    """Whether equal tuples may stand in another order than they came: not where that of another plan is the same."""
    return all(each.mended for each in ([plan] if plan.common is None else plan.common.family.plans))


def _columns(fields: Fields) -> set[str]:
    return {field.name for each in fields.values() for field in each}


def _equal(one: Sequence[State], other: Sequence[State], names: list[str] | None) -> bool:
    """Whether states are equal in columns of these names, but for counts."""
    return same({"operators": narrowed(one, names)}, {"operators": narrowed(other, names)})


def _read_the_same(one: _Side, other: _Side, names: list[str] | None) -> bool:
    """Whether they are joins of two streams, of no family yet, that could read the same tuples."""
    if one.like.tuples is None or one.like.tuples != other.like.tuples:
        return False
    apart = one.family is None or one.family is not other.family
    return apart and _equal([_newest(one, other)], [_newest(other, one)], names)


def _newest(one: _Side, other: _Side) -> State:
    """The state of one's join with as many tuples in its windows as are in those of both."""
    state = one.states[0]["holds"]
    windows = []
    for mine, theirs in zip(state["windows"], other.states[0]["holds"]["windows"], strict=True):
        had = mine["ts"].shape[0]
        kept = np.arange(max(0, had - theirs["ts"].shape[0]), had)
        windows.append({**mine, "ts": mine["ts"][kept], "rows": mine["rows"].take(pa.array(kept))})
    return {**state, "windows": windows}


def _by_name(rows: Any) -> dict[str, Any]:
    return dict(zip(rows.schema.names, rows.columns, strict=True))


def _batch(columns: Mapping[str, Any]) -> Any:
    """In the order of `fields_of_both`."""
    names = sorted(columns)
    return pa.RecordBatch.from_arrays([columns[name] for name in names], names=names)


def _nothing_stored(leaf: Relation) -> Any:
    raise AssertionError(leaf)
