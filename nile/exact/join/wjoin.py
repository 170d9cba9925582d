"""The exact window join of n streams: one interface, every algorithm of the W-join family by name.

Push batches in total order and take the combinations they complete, or hand over whole arrays.  A combination has one
tuple of each stream, keeps every window of the graph, and satisfies the condition; it comes out once, when its last
tuple has come in.  Nothing waits for a stream that is silent: time moves on by what the others show, and `advance`
says it where all are silent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from nile.exact.join.checks import known, whole_numbers
from nile.exact.join.count import CountStream
from nile.exact.join.form import Form
from nile.exact.join.listed import Words, with_rows
from nile.exact.join.stream import ChainStream
from nile.exact.join.walk import Condition, WalkJoin
from nile.exact.join.window_graph import WindowGraph
from nile.exact.state.held import MOST, Held, State
from nile.summaries.errors import ConfigError, ExpressionError, TimestampOrderError

__all__ = ["ALGORITHMS", "STRATEGIES", "Condition", "WindowJoin", "WindowJoinPlan", "window_join"]

Array = np.ndarray[Any, Any]
Made = TypeVar("Made")
_LEAST = int(np.iinfo(np.int64).min)
ALGORITHMS = ("chain", "bew-nested", "bew-hash", "few-nested", "few-hash", "ripple", "xjoin")
STRATEGIES = ("gca", "lca", "mbe", "exact")
OUTPUTS = ("combinations", "count")
EQUAL = Condition()
_KEYED = ("chain", "bew-hash", "few-hash", "xjoin")
_CONSERVATIVE = ("few-nested", "few-hash", "ripple", "xjoin")


@dataclass(frozen=True)
class WindowJoinPlan:
    """What to join and how; `start` gives the running join.

    on: `Condition()` for equal codes, `Condition("band", width)` for values at most `width` apart, every two of them,
    or `Condition("any")` for no condition on values; predicate: of ordinals int64 [m, n], true or false for each, for
    anything else, evaluated on what satisfies `on`.
    algorithm: one of ALGORITHMS, or "" for the default: chain for equal codes, else few-nested.
    strategy: how non-uniform windows are kept, or "" for the algorithm's default.  gca: filter by the
    widest window, then refine; lca: filter by each stream's widest, then refine; mbe: backward evaluation along the
    given windows, no refining; exact: the same with the bounds that follow for all other pairs, which prunes most.
    output: "combinations", or "count" to keep only their number.
    cleanup: arrivals between the clean-ups of ripple and xjoin.  threads: how many a join of two streams may use, None
    for all cores; no output depends on it.
    Raises ConfigError for an unknown name, hashing without equality, or a strategy the algorithm has no use for.
    Source: TR 02-010 sections 3 and 5, window joins (SSDBM 2003); there tuples come in any order between streams,
    here in one total order, so that forward evaluation never waits and every algorithm completes the same
    combinations at the same arrival.
    """

    graph: WindowGraph
    on: Condition = EQUAL
    algorithm: str = ""
    strategy: str = ""
    predicate: Callable[[Array], Array] | None = None
    output: str = "combinations"
    cleanup: int = 10_000
    threads: int | None = None

    def __post_init__(self) -> None:
        known("algorithm", self.algorithm, ("", *ALGORITHMS))
        known("strategy", self.strategy, ("", *STRATEGIES))
        known("output", self.output, OUTPUTS)
        known("condition", self.on.kind, ("equal", "band", "any"))
        if isinstance(self.on.width, bool) or not isinstance(self.on.width, int) or self.on.width < 0:
            raise ConfigError(
                f"window join, condition: needed a whole width of 0 or more; got {self.on.width!r}; write Condition"
                '("band", 5)'
            )
        if isinstance(self.cleanup, bool) or not isinstance(self.cleanup, int) or self.cleanup < 1:
            raise ConfigError(
                f"window join, cleanup: needed a whole number of arrivals above 0; got {self.cleanup!r}; "
                "leave it out for 10000"
            )
        algorithm, strategy = self.chosen
        if algorithm in _KEYED and self.on.kind != "equal":
            raise ConfigError(
                f"window join, algorithm {algorithm!r}: needed equality of keys; got condition {self.on.kind!r}; use "
                "'bew-nested' or 'few-nested'"
            )
        if algorithm in _CONSERVATIVE and strategy in ("mbe", "exact"):
            raise ConfigError(
                f"window join, algorithm {algorithm!r}: needed strategy gca or lca, which filter and refine; got "
                f"{strategy!r}; use it with chain, bew-nested or bew-hash"
            )

    @property
    def chosen(self) -> tuple[str, str]:
        """The algorithm and the strategy in use: those named, or the defaults."""
        algorithm = self.algorithm or ("chain" if self.on.kind == "equal" else "few-nested")
        return algorithm, self.strategy or self._own_strategy(algorithm)

    def _own_strategy(self, algorithm: str) -> str:
        """The strategy an algorithm takes when none is named."""
        if self.graph.is_uniform:
            return "gca"  # its widest window is its only one
        if algorithm == "chain":
            return "exact"
        if algorithm in ("bew-nested", "bew-hash"):
            return "lca" if self.graph.form == "clique" else "mbe"
        return "lca" if algorithm in ("few-nested", "few-hash") else "gca"

    def explain(self) -> str:
        """One line: form, windows, algorithm, strategy."""
        graph = self.graph
        windows = ", ".join(f"({graph.name(i)}, {graph.name(j)}) {ns} ns" for (i, j), ns in graph.constraints.items())
        return (
            f"window join of {graph.streams} streams, {graph.form}: {windows}; on {self.on.kind}; "
            f"algorithm {self.chosen[0]}, strategy {self.chosen[1]}"
        )

    def start(self) -> WindowJoin:
        """A join that has seen nothing."""
        return WindowJoin(self)


class WindowJoin:
    """A running window join.  Costs: see the algorithm; `memory` and `costs` report what was spent.

    plan: what is joined.
    """

    HELD: ClassVar = ("_completed", "_engine", "_now", "_pending")
    DERIVED: ClassVar = ("plan",)

    def __init__(self, plan: WindowJoinPlan) -> None:
        self.plan = plan
        self._completed = 0
        self._engine = _engine(plan)
        self._now = int(np.iinfo(np.int64).min)
        self._pending: deque[Array] = deque()

    def push(self, stream: int | Array, ts: Any, codes: Any = None) -> None:
        """Apply a batch; what it completes waits in `outputs`.

        stream: of all tuples of the batch, or an integer array [m], one per tuple.  ts: int64 [m] ns, not decreasing,
        nor before anything pushed; at the same ts tuples count in the order pushed.  codes: int64 [m] as
        `nile.exact.join.chain.encode_all` gives them (below 0: null), or values under "band" (the least int64: null);
        not needed under "any".  Raises ConfigError, KeyTypeError, TimestampOrderError; the batch is then not applied.
        """
        times = whole_numbers(ts, "ts", self._what(stream))
        values = self._values(codes, times, self._what(stream))
        which: int | Array = self._streams_of(stream, times)
        self._check_order(times, self._what(stream))
        if times.shape[0]:
            self._now = int(times[-1])
            self._pending.extend(self._passed(self._engine.push(which, times, values)))

    def run(self, ts: Sequence[Any], codes: Sequence[Any] | None = None) -> Iterator[Array]:
        """Apply whole streams, merged in total order (ts, stream, arrival); yields what they complete as it comes.

        ts, codes: one array per stream, as for `push`.  Yields int64 [m, n]: the members' ordinals, a column per
        stream, in the order they complete; a column is contiguous, so it becomes Arrow without a copy.
        Raises as `push` does, before anything is applied.
        """
        return self.made(ts, codes, lambda block: block)

    def made(
        self, ts: Sequence[Any], codes: Sequence[Any] | None, make: Callable[[Array], Made], *, kept: bool = True,
        words: Words[Made] | None = None) -> Iterator[Made]:  # fmt: skip
        """What `make` makes of each block of `run`, in their order; of two streams joined by chain it is called on the
        threads that find them.

        kept: whether that holds the block itself, or a part of it; else its room may serve for the next one.
        words: what may be made of the same pairs instead, where it costs less.
        """
        n = self.plan.graph.streams
        given = [None] * n if codes is None else list(codes)
        if len(ts) != n or len(given) != n:
            raise ConfigError(
                f"window join: needed ts and codes of {n} streams; got {len(ts)} and {len(given)}; name one array a "
                "stream"
            )
        times = tuple(whole_numbers(each, "ts", self._what(k)) for k, each in enumerate(ts))
        values = tuple(self._values(each, times[k], self._what(k)) for k, each in enumerate(given))
        for k, each in enumerate(times):
            self._check_order(each, self._what(k))
        self._now = max([self._now, *(int(each[-1]) for each in times if each.shape[0])])
        if isinstance(self._engine, ChainStream) and self.plan.predicate is None:
            counted = None if words is None else words.counted()
            return self._counted(self._engine.made(times, values, with_rows(make), kept=kept, words=counted))
        return map(make, self._passed(self._engine.merged(times, values)))

    def capture(self) -> State:
        """What the join holds: how far it has come, the tuples that something to come can join, outputs nobody took.

        Not while a `run` is being read.  What it has cost is not held: `costs` begin anew.
        """
        graph = self.plan.graph
        since = [max(self._now - graph.lookback(i), _LEAST) for i in range(graph.streams)]
        kept = [self._engine.holding(i, begin) for i, begin in enumerate(since)]
        streams = [{"ordinals": ordinals, "ts": ts, "codes": codes} for ordinals, ts, codes in kept]
        pending = np.concatenate([np.zeros((0, graph.streams), np.int64), *self._pending])
        return {
            "now": self._now,
            "completed": self.completed,
            "seen": self.seen,
            "streams": streams,
            "pending": np.ascontiguousarray(pending),
        }

    def restore(self, held: Held) -> None:
        """Put what was captured into a new join of the same plan.  Raises EnvelopeError."""
        n = self.plan.graph.streams
        now = held.integer("now")
        completed = held.integer("completed", 0, MOST)
        seen = held.counts("seen", n).tolist()
        tuples = []
        for i, part in enumerate(held.parts("streams", n)):
            ts = part.rising("ts")
            ordinals, codes = (part.array(name, "int64", ts.shape) for name in ("ordinals", "codes"))
            part.end()
            if (np.diff(ordinals, prepend=-1, append=seen[i]) <= 0).any():
                held.refuse(f"ordinals that rise from 0 or more to below {seen[i]}", ordinals)
            tuples.append((ordinals, ts, codes))
        pending = held.array("pending", "int64", (None, n))
        held.end()
        self._pending = deque([pending] if pending.shape[0] else [])
        self._completed = completed
        self.hold(now, seen, tuples, completed)

    def hold(
        self, now: int, seen: Sequence[int], tuples: Sequence[tuple[Array, Array, Array]], completed: int = 0
    ) -> None:
        """Let a join that has seen nothing go on at `now`: as if it had seen so many tuples of each stream.

        tuples: of each stream (ordinals, ts, codes), int64 [m], those that something to come may join, in order; null
        ones may be among them.  completed: how many combinations it has completed.
        """
        self._now = now
        self._engine.hold(now, seen, [_joinable(self.plan.on, *each) for each in tuples], completed)

    def outputs(self) -> Iterator[Array]:
        """Unread combinations completed by pushed batches: int64 [m, n], as `run` yields them."""
        while self._pending:
            yield self._pending.popleft()

    def advance(self, now: int) -> None:
        """Declare that no tuple before `now` will come: evicts what none can join, however silent the streams."""
        if now > self._now:
            self._now = int(now)
            self._engine.advance(self._now)

    @property
    def completed(self) -> int:
        """Combinations so far."""
        return self._engine.completed if isinstance(self._engine, CountStream) else self._completed

    @property
    def form(self) -> Form | None:
        """In which two whole streams were joined; None of what has one form alone."""
        return self._engine.form if isinstance(self._engine, ChainStream) else None

    @property
    def memory(self) -> int:
        """Bytes of the operator's state, beyond its input and output."""
        return self._engine.memory

    @property
    def most_memory(self) -> int:
        """Peak bytes of the operator's state so far, over all cores."""
        return self._engine.most_memory

    @property
    def held(self) -> int:
        """Tuples kept."""
        return self._engine.held

    @property
    def seen(self) -> Array:
        """Tuples seen of each stream, nulls included: int64 [n]."""
        return self._engine.seen.copy()

    @property
    def costs(self) -> dict[str, int]:
        """Operations so far: comparisons (candidates looked at), probes (scans or buckets begun), updates (of a hash
        table), dropped (tuples removed), moved (tuples copied when a buffer grew)."""
        return self._engine.counts

    def _passed(self, blocks: Iterator[Array]) -> Iterator[Array]:
        """Blocks that satisfy the predicate, counted."""
        predicate = self.plan.predicate
        for block in blocks:
            kept = block
            if predicate is not None:
                passes = np.asarray(predicate(block))
                if passes.shape != (block.shape[0],) or passes.dtype != np.bool_:
                    raise ExpressionError(
                        f"window join, predicate: needed {block.shape[0]} booleans, one a combination; got "
                        f"{passes.dtype} {list(passes.shape)}; return an array such as a[ordinals[:, 0]] < 5"
                    )
                kept = block[passes]
            self._completed += kept.shape[0]
            if kept.shape[0] and self.plan.output == "combinations":
                yield kept

    def _counted(self, found: Iterator[tuple[int, Made]]) -> Iterator[Made]:
        for rows, made in found:
            self._completed += rows
            yield made

    def _what(self, stream: int | Array) -> str:
        return self.plan.graph.name(int(stream)) if isinstance(stream, int | np.integer) else "batch of several streams"

    def _streams_of(self, stream: int | Array, ts: Array) -> int | Array:
        n = self.plan.graph.streams
        if isinstance(stream, int | np.integer) and not isinstance(stream, bool):
            which = np.array([stream])
        else:
            which = np.asarray(stream)
            if which.shape != ts.shape or which.dtype.kind not in "iu":
                raise ConfigError(
                    f"window join: needed a stream number, or {ts.shape[0]} of them as integers; got {which.dtype} "
                    f"{list(which.shape)}; give one per tuple"
                )
        if which.shape[0] and (which.min() < 0 or which.max() >= n):
            wrong = int(which.min()) if which.min() < 0 else int(which.max())
            raise ConfigError(f"window join: needed streams 0 to {n - 1}; got {wrong}; number them as in the graph")
        return int(stream) if isinstance(stream, int | np.integer) else which

    def _values(self, codes: Any, ts: Array, what: str) -> Array:
        if codes is None:
            if self.plan.on.kind == "any":
                return ts  # not looked at
            raise ConfigError(
                f"window join, {what}: needed codes for condition {self.plan.on.kind!r}; got none; give one per tuple"
            )
        values = whole_numbers(codes, "codes", what)
        if values.shape != ts.shape:
            raise ConfigError(
                f"window join, {what}: needed as many codes as times; got {values.shape[0]} and {ts.shape[0]}; "
                "give one per tuple"
            )
        return values

    def _check_order(self, ts: Array, what: str) -> None:
        if not ts.shape[0]:
            return
        if ts[0] < self._now:
            raise TimestampOrderError(
                f"window join, {what}: needed tuples at {self._now} ns or later, the time already reached; got "
                f"{int(ts[0])}; push batches in the order of their times"
            )
        late = np.flatnonzero(ts[1:] < ts[:-1])
        if late.shape[0]:
            k = int(late[0]) + 1
            raise TimestampOrderError(
                f"window join, {what}: needed times that do not decrease; got {int(ts[k])} ns after {int(ts[k - 1])} "
                f"at place {k} of the batch; sort it by time"
            )


def window_join(
    graph: WindowGraph,
    on: Condition | str = "equal",
    algorithm: str | None = None,
    strategy: str | None = None,
    predicate: Callable[[Array], Array] | None = None,
    names: Sequence[str] = (),
    *,
    output: str = "combinations",
    cleanup: int = 10_000,
) -> WindowJoin:
    """A running window join over `graph`; parameters as `WindowJoinPlan` has them, names for messages.

    >>> import numpy as np
    >>> join = window_join(WindowGraph.uniform(2, 10))
    >>> join.push(0, np.array([1, 5]), np.array([7, 8]))
    >>> join.push(1, np.array([6, 20]), np.array([7, 8]))
    >>> [block.tolist() for block in join.outputs()]
    [[[0, 0]]]
    """
    condition = Condition(on) if isinstance(on, str) else on
    named = replace(graph, names=tuple(names)) if names else graph
    return WindowJoinPlan(named, condition, algorithm or "", strategy or "", predicate, output, cleanup).start()


def _joinable(on: Condition, ordinals: Array, ts: Array, codes: Array) -> tuple[Array, Array, Array]:
    """Those tuples whose values can join."""
    stay = codes > on.null if on.kind != "any" else np.ones(codes.shape[0], np.bool_)
    return ordinals[stay], ts[stay], codes[stay]


def _engine(plan: WindowJoinPlan) -> ChainStream | CountStream | WalkJoin:
    algorithm, strategy = plan.chosen
    if algorithm == "chain" and plan.graph.streams == 2:
        only_count = plan.output == "count" and plan.predicate is None
        window = plan.graph.widest  # of a directed pair too: either order is within it
        return CountStream(window, plan.threads) if only_count else ChainStream(window, plan.threads)
    return WalkJoin(plan.graph, plan.on, algorithm, strategy, plan.cleanup)
