"""What each operator of a pipeline has done: its counts, per batch, and its bytes.

A chain of selections and projections over a stream works below W-Expire, on arrivals alone; so of the nodes of a chain
only the topmost has negative tuples and the bytes of the window, and those below it count arrivals as they are pushed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nile.exact.pipeline.schedule import Delta, Operator
from nile.exact.plan.algebra import Plan
from nile.exact.state import held as holding

__all__ = ["Counted", "Figures", "Path", "Told", "counted_leaf", "sides"]

Path = tuple[int, ...]
Told = Callable[[], "list[Figures]"]
"""The figures of a node and all below it, the node first."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What one node of a plan has done so far.

    path: which input of which input it is, () the root, None the window of the output, which the plan does not have;
    tuples: signed tuples that came in (of a scan those pushed, of a relation its rows); positive, negative: that went
    out, 0 where nobody reads them (emit='snapshot'); held: rows that were asked of it as they stood, None if they
    never were; memory: bytes of its own state.
    """

    node: Plan | None
    path: Path | None
    name: str
    tuples: int
    positive: int
    negative: int
    held: int | None
    memory: int


class Counted:
    """An operator whose output is counted, and a queue of what it has made and the one above has not taken.

    With nothing in it a step is a step of the operator.  Cost: one look at the signs of a batch.
    told: the figures of each input; leaf: instead, of an operator that reads a leaf itself, the counts of its chain;
    waiting: (the instant it was asked for, what changed, GetTime then) of each step that nobody has taken.
    """

    KIND: ClassVar = "counted"
    HELD: ClassVar = ("operator", "positive", "negative")
    DERIVED: ClassVar = ("schema", "held", "waiting", "told", "_node", "_path", "_leaf", "_time")

    def __init__(
        self,
        operator: Operator,
        node: Plan | None,
        path: Path | None,
        told: Sequence[Told] = (),
        leaf: Sequence[int] | None = None,
    ) -> None:
        self.operator = operator
        self.schema = operator.schema
        self.positive = 0
        self.negative = 0
        self.held: int | None = None
        self.waiting: deque[tuple[int, Delta, int]] = deque()
        self._time: int | None = None  # of what was taken last; None: of the operator as it is
        self._node, self._path, self.told, self._leaf = node, path, told, leaf

    def fill(self, to: int) -> int:
        """Let the operator work up to an instant; how many tuples came out of it."""
        waiting, time = self.waiting, self._time
        self.waiting = deque()
        delta = self.step(to)
        waiting.append((to, delta, self.operator.time()))
        self.waiting, self._time = waiting, time
        return len(delta)

    def step(self, to: int) -> Delta:
        """What the operator changes up to `to`."""
        if self.waiting:
            asked, delta, self._time = self.waiting.popleft()
            assert asked == to
            return delta
        self._time = None
        delta = self.operator.step(to)
        if n := delta.sign.shape[0]:
            if delta.times is None:
                gone = delta.counted if delta.counted >= 0 else delta.gone
            else:
                n, gone = int(delta.times.sum()), int(delta.times[delta.sign < 0].sum())
            self.negative += gone
            self.positive += n - gone
        return delta

    def time(self) -> int:
        """GetTime of the operator, as it was when what was taken last was made."""
        return self.operator.time() if self._time is None else self._time

    @property
    def first(self) -> int:
        """Tuples of what is taken next."""
        return len(self.waiting[0][1]) if self.waiting else 0

    @property
    def tuples(self) -> int:
        """Tuples that wait."""
        return sum(len(delta) for _, delta, _ in self.waiting)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of them."""
        return sum(int(each.ts.nbytes + each.sign.nbytes + each.rows.nbytes) for _, each, _ in self.waiting)

    def contents(self) -> Any:
        """The rows that hold now."""
        rows = self.operator.contents()
        self.held = rows.num_rows
        return rows

    def capture(self) -> holding.State:
        """What the operator holds, and how much has come out of it: nothing waits."""
        return {
            "is": self.operator.KIND,
            "come": self.positive,
            "gone": self.negative,
            "holds": self.operator.capture(),
        }

    def restore(self, held: holding.Held) -> None:
        """Put what was captured into a new operator of the same definition.  Raises EnvelopeError."""
        kind = self.operator.KIND
        if (given := held.text("is")) != kind:
            held.refuse(f"the state of a {kind}", given)
        self.positive = held.integer("come", 0, holding.MOST)
        self.negative = held.integer("gone", 0, holding.MOST)
        self.operator.restore(held.part("holds"))
        held.end()

    @property
    def memory(self) -> int:
        return self.operator.memory + (self.waiting_bytes if self.waiting else 0)

    def figures(self) -> list[Figures]:
        """Of the operator and all below it."""
        inputs = [each() for each in self.told]
        came = sum(each[0].positive + each[0].negative for each in inputs)
        if self._leaf is not None and not inputs:
            came = self._leaf[0]
        own = int(self.operator.memory) - sum(one.memory for each in inputs for one in each)
        name = "window of the output" if self._node is None else type(self._node).__name__.lower()
        mine = Figures(self._node, self._path, name, came, self.positive, self.negative, self.held, own)
        return [mine, *(one for each in inputs for one in each)]


def counted_leaf(operator: Any, chain: list[Plan], counts: Sequence[int], path: Path) -> Counted:
    """An operator that reads a leaf itself.  chain: the leaf and the nodes above it; counts: rows out of each."""

    def below() -> list[Figures]:
        arrivals = getattr(operator, "arrivals", None)
        waiting = 0 if arrivals is None else int(arrivals.memory)
        return _chain_told(chain[:-1], counts, (*path, 0), 0, waiting)

    return Counted(operator, chain[-1], path, [below] if len(chain) > 1 else (), counts)


def _chain_told(chain: list[Plan], counts: Sequence[int], path: Path, negative: int, waiting: int) -> list[Figures]:
    """Figures of a chain whose top is at `path`.  waiting: bytes of tuples that have not been worked on."""
    out = []
    for k in range(len(chain) - 1, -1, -1):
        gone = negative if k == len(chain) - 1 else 0
        name = type(chain[k]).__name__.lower()
        came = counts[max(k - 1, 0)]
        out.append(Figures(chain[k], path, name, came, counts[k], gone, None, waiting if k == 0 else 0))
        path = (*path, 0)
    return out


def sides(operator: Any, path: Path) -> list[Told]:
    """The figures of the streams that a join keeps in its own buffers.

    operator: has `arrivals`, of each stream, and `left`, how many tuples of each have left.
    """

    def one(i: int) -> Told:
        def told() -> list[Figures]:
            arrivals = operator.arrivals[i]
            chain = [arrivals.scan, *arrivals.above]
            return _chain_told(chain, arrivals.counts, (*path, i), operator.left[i], int(arrivals.memory))

        return told

    return [one(i) for i in range(len(operator.arrivals))]
