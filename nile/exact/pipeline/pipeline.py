"""Continuous queries over windowed streams and stored relations, correct at every instant.

A plan (`nile.exact.plan.algebra`) becomes operators; tuples are pushed, signed changes are returned.  At every
instant T the changes so far add up to the snapshot query over what the windows hold at T; changes that cancel out
within an instant are not reported.  An instant is processed once all its tuples are known, so no output depends on how
the input was batched.  Source: negative tuples, Definition 1 and sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from nile.base.weakly import weakly
from nile.exact.pipeline.above import OutputWindow
from nile.exact.pipeline.build import Reader, build
from nile.exact.pipeline.check import check
from nile.exact.pipeline.figures import Counted, Figures
from nile.exact.pipeline.schedule import EARLIEST, Changes, Clock, Delta
from nile.exact.pipeline.sources.constrained import ConstrainedJoining
from nile.exact.pipeline.sources.incoming import Named
from nile.exact.pipeline.sources.part import Part
from nile.exact.pipeline.sources.taken_back import takes_nothing_back
from nile.exact.pipeline.stages import Stages
from nile.exact.plan.algebra import Plan
from nile.exact.plan.constraints import StreamConstraint
from nile.exact.state.arrow import Array, pa
from nile.exact.state.expire import NEVER
from nile.exact.state.held import MOST, Held, State
from nile.exact.state.lent import lent
from nile.summaries.errors import ConfigError, TimestampOrderError, UnknownStream

__all__ = ["Changes", "Emit", "Figures", "Pipeline", "Scheduling", "check"]

Scheduling = Literal["nta", "tpa", "ita"]
Emit = Literal["append", "changes", "snapshot"]

_WHOLE = np.dtype(np.int64)
FORMAT = 1
"""Which form `capture` gives; a later one reads those before it."""


class Pipeline:
    """A running plan.

    scheduling: `nta` (negative tuples), `tpa` (time probing) or `ita` (input triggered: late); emit: `append` (every
    row ever added), `changes` (signed) or `snapshot` (the state at the end, once).  Rows of stored relations, and
    the row of a group without keys, are output at the first instant there is: of a tuple, or of `advance`.
    signed: whether removals are output under `append`, too, as operators above it need (`Tail`); threads: that a join
    of two streams may work on, None for all cores; parts: what is at work elsewhere, by the identities of its nodes.
    Raises ConfigError, KeyTypeError, UnknownColumn for what is wrong with the plan.
    """

    HELD: ClassVar[tuple[str, ...]] = (
        "_clock", "_root", "_built", "_last", "_passed", "stages", "_advanced", "_finished", "_counts",
    )  # fmt: skip
    DERIVED: ClassVar[tuple[str, ...]] = ("plan", "scheduling", "emit", "signed", "deferred", "_found", "_arrivals")

    def __init__(
        self, plan: Plan, scheduling: Scheduling = "nta", emit: Emit = "changes", *, signed: bool = False,
        threads: int | None = 1, parts: Mapping[int, Part] | None = None,
    ) -> None:  # fmt: skip
        for where, given, known in (("scheduling", scheduling, Scheduling), ("emit", emit, Emit)):
            if given not in get_args(known):
                raise ConfigError(f"{where}: needed one of {', '.join(get_args(known))}; got {given!r}; take one")
        check(plan)
        self.plan = plan
        self.scheduling = scheduling
        self.emit = emit
        self.signed = signed
        self._clock = Clock(scheduling, threads=threads)
        reader = Reader(come=emit != "snapshot", go=emit == "changes", keep=emit == "snapshot")
        self._root, self._built = build(plan, self._clock, reader, parts)
        if emit == "changes" and scheduling != "nta":
            self._root = Counted(OutputWindow(self._clock, self._root), None, None, [self._root.figures])
            self._built.all.append(self._root)
        self._last = dict.fromkeys((each.scan.name for each in self._built.arrivals), EARLIEST)
        self._arrivals = {name: [at for at in self._built.arrivals if at.scan.name == name] for name in self._last}
        self._passed = dict(self._last)  # no tuple of this time or before will come
        self._built.stages[-1].operator = self._root
        marks = [*(each.nth for each in self._built.arrivals), *(each.next_leaving for each in self._built.streams)]
        pairs = weakly(self._pairs) if self._built.joins else None
        self.stages = Stages(self._built.stages, marks, pairs, weakly(self._tell), self._built.is_pushed)
        self.deferred = False
        """Whether what comes waits until its operators are run (`stages`), or `settle` is called."""
        self._found: list[Changes] = []
        self._advanced = EARLIEST
        self._finished = False
        self._counts = {"tuples": 0, "changes": 0}

    @property
    def schema(self) -> Any:
        """The columns of the output."""
        return self.plan.schema

    def push(
        self, name: str, ts: Array, rows: Any, now: int | None = None, named: Named | None = None
    ) -> list[Changes]:
        """Push tuples of one stream (ts int64 [n] ns, not decreasing; rows [n]); returns the final changes so far.

        An instant is emitted only once every stream has passed it, or `advance` says so; now: as if it said so after.
        named: which columns of rows these are.
        Raises UnknownStream, TimestampOrderError; ConfigError after `finish` or `close`.
        """
        if name not in self._last:
            known = ", ".join(sorted(self._last)) or "none: the plan reads no stream"
            raise UnknownStream(f"push: needed one of {known}; got {name!r}; name one of these")
        times = ts if ts.dtype is _WHOLE and ts.flags.carray else lent(np.ascontiguousarray(ts, np.int64))
        if (n := times.shape[0]) != rows.num_rows:
            raise ConfigError(f"stream {name!r}: needed a time for each row; got {n} and {rows.num_rows}; match them")
        if n:
            last = self._ordered(name, times)
            for each in self._arrivals[name]:
                each.push(times, rows, named)
            self._last[name] = last
            if last - 1 > self._passed[name]:
                self._passed[name] = last - 1
            self._counts["tuples"] += n
            self.stages.came += n
        if now is not None and now > self._advanced:
            self._reach(now)
        return self._ready()

    @property
    def reached(self) -> tuple[Any, ...]:
        """How far it has come: the same of two pipelines that were told the same of time."""
        return self.stages.done, self._advanced, self._finished, self._clock.origin is None, self._last, self._passed

    @property
    def has_begun(self) -> bool:
        """Whether there was an instant, and has been no end."""
        return self._clock.origin is not None and not self._finished

    def open_from(self, name: str) -> int | None:
        """The earliest instant at which tuples of a stream, or changes of a relation, can still arrive; None: any."""
        passed = min(self._passed[name], NEVER - 1)
        return max(self._last[name], passed + 1) if passed > EARLIEST else None

    def takes_nothing_back(self) -> str | None:
        """What in the plan does not support retractions, in words; None: nothing."""
        return takes_nothing_back(self.plan, self.scheduling, self.emit)

    def take_back(self, name: str, at: int, ts: Array, rows: Any) -> list[Changes]:
        """Retract pushed tuples from the instant `at` on; returns the final changes so far.

        ts int64 [n] ns, rows [n]: as pushed, in any order; tuples that have left their window change nothing.  at: not
        before the last tuple of the stream.  Cost: O(n), beside a join of streams O(tuples of its windows).
        Raises ConfigError where `takes_nothing_back`, TimestampOrderError.
        """
        if (what := self.takes_nothing_back()) is not None:
            raise ConfigError(f"stream {name!r}: needed a query that can take tuples back; got {what}")
        self._ordered(name, np.array([at]))
        for each in self._built.arrivals:
            if each.scan.name == name:
                each.take_back(at, np.ascontiguousarray(ts, np.int64), rows)
        self._last[name] = at
        self._passed[name] = max(self._passed[name], at - 1)
        return self._ready()

    def punctuate(self, constraint: StreamConstraint, at: int, rows: Any) -> None:
        """After the instant `at` no tuple of these values (rows of the constraint's columns) comes to its stream."""
        for each in self._built.joins:
            if isinstance(each, ConstrainedJoining):
                each.punctuate(constraint, at, rows)

    def advance(self, now: int, *, certain: bool = True) -> list[Changes]:
        """Declare that no stream gets a tuple of time `now` or before any more; returns the resulting changes.

        certain: `now` is an instant there is, where rows of stored relations may begin; else the first is a tuple's.
        """
        if now > self._advanced:
            self._reach(int(now))
        stages = self.stages
        if self._advanced <= stages.to <= stages.done and not self._found and self._clock.origin is not None:
            return []
        return self._work(self._advanced, certain=certain)

    def _reach(self, now: int) -> None:
        """As `advance`, later than before, but for what follows."""
        self._advanced = now
        for name, passed in self._passed.items():
            if passed < now:
                self._passed[name] = now

    def close(self, name: str) -> list[Changes]:
        """Declare that a stream has ended; returns the resulting changes."""
        if name not in self._last:
            raise UnknownStream(
                f"close: needed one of {', '.join(sorted(self._last))}; got {name!r}; name one of these"
            )
        self._passed[name] = NEVER
        return self._ready()

    def finish(self, at: int | None = None) -> list[Changes]:
        """Declare that all streams have ended; returns the changes up to `at` (None: the last tuple's time).

        With emit='snapshot' the state then, as rows of sign +1.
        """
        last = max([self._advanced, *self._last.values()])
        last = last if at is None else max(last, int(at))
        last = 0 if last == EARLIEST else last
        self._passed = dict.fromkeys(self._passed, NEVER)
        self.deferred = False
        out = self._work(last, certain=True)
        self._finished = True
        if self.emit == "snapshot":
            rows = self._root.contents()
            self._counts["changes"] += rows.num_rows
            return [Changes(np.full(rows.num_rows, last, np.int64), np.ones(rows.num_rows, np.int8), rows)]
        return out

    def run(self, sources: Mapping[str, Iterable[tuple[Array, Any]]], at: int | None = None) -> Iterator[Changes]:
        """Push from iterators of (ts, rows), the stream furthest behind first, and finish."""
        ahead = {name: iter(source) for name, source in sources.items()}
        for name in set(self._last) - set(ahead):
            yield from self.close(name)
        while ahead:
            name = min(ahead, key=lambda each: self._passed.get(each, EARLIEST))
            try:
                ts, rows = next(ahead[name])
            except StopIteration:
                del ahead[name]
                yield from self.close(name)
                continue
            yield from self.push(name, ts, rows)
        yield from self.finish(at)

    def snapshot(self) -> Any:
        """The rows that are valid at the last instant processed: a Table.

        Raises ConfigError where nothing keeps them: a plan without an operator that has state, unless emit is
        `snapshot`.
        """
        return pa.Table.from_batches([self._root.contents()], self.schema)

    def capture(self) -> State:
        """All that the pipeline holds: a dict of JSON values, numpy arrays, Arrow batches, dicts and lists of these.

        The same tuples pushed give the same state, however they were cut into batches.  Not held is what says how the
        work was done rather than what it came to: steps taken, and the rows of the last snapshot (`Figures.held`).
        Nothing waits (`settle`).  Cost: a copy of the state.
        """
        assert not self.waits
        return {
            "format": FORMAT,
            "scheduling": self.scheduling,
            "emit": self.emit,
            "origin": self._clock.origin,
            "done": self.stages.done,
            "advanced": self._advanced,
            "finished": self._finished,
            "tuples": self._counts["tuples"],
            "changes": self._counts["changes"],
            "streams": [
                {"name": name, "last": self._last[name], "passed": self._passed[name]} for name in sorted(self._last)
            ],
            "operators": [each.capture() for each in self._built.all],
        }

    def restore(self, state: State) -> None:
        """Put what was captured into a new pipeline of the same plan, scheduling and emit, which goes on from there.

        Raises ConfigError if tuples were pushed to it; EnvelopeError for a state that is not of this plan, after which
        the pipeline is of no use.
        """
        if self._counts["tuples"] or self.stages.steps or self._clock.origin is not None:
            raise ConfigError("restore: needed a pipeline that has seen nothing; got one at work; make a new one")
        held = Held(state, "state of a query")
        held.integer("format", FORMAT, FORMAT)
        for name, own in (("scheduling", self.scheduling), ("emit", self.emit)):
            if (given := held.text(name)) != own:
                held.refuse(f"{name} {own!r}", given)
        self._clock.origin = held.integer_or_none("origin")
        self.stages.resume(held.integer("done"))
        self._advanced = held.integer("advanced")
        self._finished = held.flag("finished")
        self._counts["tuples"] = held.integer("tuples", 0, MOST)
        self._counts["changes"] = held.integer("changes", 0, MOST)
        for name, part in zip(sorted(self._last), held.parts("streams", len(self._last)), strict=True):
            if (given := part.text("name")) != name:
                part.refuse(f"stream {name!r}", given)
            self._last[name] = part.integer("last")
            self._passed[name] = part.integer("passed")
            part.end()
        for each, part in zip(self._built.all, held.parts("operators", len(self._built.all)), strict=True):
            each.restore(part)
        held.end()

    def reader_of(self, plan: Plan) -> Reader | None:
        """For whom a node of the plan was made; None: it is within another."""
        return self._built.made.get(id(plan), (None,))[0]

    def capture_part(self, plan: Plan, above: Plan | None = None) -> list[State]:
        """The states of a node of the plan and of all below it; above: but for this node, one below, and what is
        below that.
        """
        own = self._built.made[id(plan)][1]
        begin = own.start if above is None else self._built.made[id(above)][1].stop
        return [each.capture() for each in self._built.all[begin : own.stop]]

    def release(self) -> None:
        """Read no part that is at work elsewhere any more: the end of this one."""
        for each in self._built.followers:
            each.part.leave(each)

    @property
    def memory(self) -> int:
        """Bytes of all operators' state and of waiting tuples."""
        return self._root.memory

    @property
    def operators(self) -> tuple[Figures, ...]:
        """What each node of the plan has done so far, the root first, inputs from left to right.

        Their bytes add up to `memory`.  Before all of them, where no negative tuples come and changes are asked for,
        the window of the output.
        """
        return tuple(self._root.figures())

    @property
    def costs(self) -> dict[str, int]:
        """Tuples pushed, negative tuples made by W-Expire, pairs joined, changes emitted, steps taken."""
        negative = sum(each.negative for each in self._built.streams)
        return {**self._counts, "steps": self.stages.steps, "negative": negative, "pairs": self._pairs()}

    def _ordered(self, name: str, times: Array) -> int:
        """The last of the times of tuples that may come."""
        passed = self._passed[name]
        if self._finished or passed == NEVER:
            raise ConfigError(
                f"stream {name!r}: needed a pipeline that takes tuples; got one after finish; make a new one"
            )
        floor = max(self._last[name], passed + 1) if passed > EARLIEST else EARLIEST
        if (first := int(times[0])) >= floor and times.shape[0] == 1:
            return first
        falls = times[1:] < times[:-1]  # centuries apart, a difference would not fit
        if first < floor or falls.any():
            at = 0 if first < floor else int(np.argmax(falls)) + 1
            before = floor if at == 0 else int(times[at - 1])
            raise TimestampOrderError(
                f"stream {name!r}: needed times that do not fall; got {int(times[at])} after {before} (row {at} of the "
                "batch); sort the source, or declare a lateness"
            )
        return int(times[-1])

    def _ready(self) -> list[Changes]:
        """Work on the instants that every stream has passed."""
        to = min(min(self._passed.values()), max(self._advanced, max(self._last.values())))
        if self._clock.origin is None or self.deferred:
            return self._work(to, certain=False)
        if to > (stages := self.stages).to:
            stages.to = to
        if stages.done < stages.to:
            stages.settle()
        found, self._found = self._found, []
        return found

    def _work(self, to: int, *, certain: bool) -> list[Changes]:
        """Up to and at `to`; certain: that instant exists even where no tuple has it."""
        if self._clock.origin is None:
            first = [at for each in self._built.arrivals if (at := each.nth(0)) is not None]
            origin = min([*first, *([to] if certain else [])], default=None)
            if origin is None or origin > to:
                return []
            self._clock.origin = origin
        self.stages.to = max(self.stages.to, to)
        return [] if self.deferred else self.settle()

    def settle(self) -> list[Changes]:
        """Work on all that waits; returns the changes that `taken` has not."""
        self.stages.settle()
        return self.taken()

    def taken(self) -> list[Changes]:
        """What operators that were run have brought out since the last call."""
        if not (found := self._found):
            return []
        self._found = []
        return found

    @property
    def waits(self) -> bool:
        """Whether something waits, for an operator or to be `taken`."""
        return self.stages.waits or bool(self._found)

    def _pairs(self) -> int:
        joins = self._built.joins
        return joins[0].pairs if len(joins) == 1 else sum([each.pairs for each in joins])

    def _tell(self, delta: Delta) -> None:
        if self.emit == "append" and not self.signed and delta.gone:
            come = delta.sign > 0
            delta = Delta(delta.ts[come], delta.sign[come], delta.rows.filter(pa.array(come)))
        if (n := delta.sign.shape[0]) and self.emit != "snapshot":
            self._counts["changes"] += n
            self._found.append(delta)
