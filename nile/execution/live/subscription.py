"""What every standing query over live streams does: process arrivals, pause, end, and be kept by a store."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from nile.base.interrupts import INTERRUPTS
from nile.exact.pipeline.figures import Figures
from nile.exact.state.expire import joined
from nile.exact.state.held import MOST, Held, State
from nile.execution.live.backlog import Backlog, Step
from nile.execution.live.commits import Commits
from nile.execution.live.into import Into
from nile.execution.live.outbox import Outbox
from nile.preferences.budget import BudgetReport
from nile.streams.accounting import Accounting
from nile.streams.live import LiveStream
from nile.streams.manager import TupleBatch
from nile.streams.taken_back import TakenBack
from nile.summaries.errors import NileError
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa

__all__ = ["Subscription"]


class Subscription(Outbox):
    """A standing query over live streams, whose outputs an `Outbox` keeps for its reader.

    A subclass works on what arrives (`_arrived`, `_progress`, `_finish`) and hands what it finds to `_hand_out`.  All
    three are parts of a change (`Commits`); a query that cannot do its part has no way on, and ends.
    """

    def __init__(self, commits: Commits, callback: Callable[[pa.RecordBatch], None] | None) -> None:
        super().__init__(commits, callback)
        self.ending: list[Callable[[], None]] = []
        self.regroup: Callable[[], None] = lambda: None
        """Told when who hears of what comes, or through whom, has to be looked at again."""
        self.paused = False
        """Whether what comes waits (`pause`)."""
        self._backlog = Backlog()
        self._replayed: Step | None = None
        self.epoch: int | None = None
        """The store's generation that first held it, which tells it from others of its name; None without a store."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def partial(self) -> tuple[str, ...]:
        """The silent streams (`idle`): current outputs do not take them into account."""
        with self._lock:
            return tuple(name for name, stream in self._streams.items() if stream.silent)

    @property
    @abstractmethod
    def accounting(self) -> dict[str, Accounting]:
        """The accounting of its streams: in = applied + late + shed + rejected."""

    @property
    @abstractmethod
    def memory(self) -> int:
        """Bytes held."""

    @property
    def budget(self) -> BudgetReport:
        """Asked and spent so far.  Of an exact query: all of it."""
        return BudgetReport(1.0, 1.0, "fraction", 1.0)

    @property
    def coverage(self) -> float:
        """The mean share of the window, in time, that could still be reached.  1 of an exact query."""
        return 1.0

    @property
    def estimate(self) -> Estimate:
        """How many outputs the exact answer has so far.  Of an exact query: as many as there are."""
        return Estimate.exact(float(self.outputs))

    def pause(self) -> None:
        """Do nothing until `resume`: input waits in order, and checkpoints keep it.

        It counts as state, beyond whose limit pushes are refused.  A retraction first processes what waits.
        """
        with self._lock, self._commits:
            self.paused = not self._closed

    def resume(self) -> None:
        """Process what waits, as if it arrived now: outputs and their numbers are those of a query never paused."""
        with self._lock:
            with self._commits:
                self.paused = False
                self._catch_up()
            self._commits.complain()

    @property
    def waiting(self) -> int:
        """Tuples waiting because of the pause."""
        return self._backlog.rows

    @property
    def waiting_bytes(self) -> int:
        """Bytes that they take."""
        return self._backlog.bytes

    @property
    def operators(self) -> tuple[Figures, ...]:
        """What each operator has done so far, the last one first."""
        return ()

    def _catch_up(self) -> None:
        for step in self._backlog.taken():
            self._replayed, name, batch = step, step.name, step.batch
            if name is None or batch is None:
                self._work(self._progress)
            else:
                self._work(self._arrived, name, batch)
            if batch is not None:
                batch.shared.clear()
        self._replayed = None

    def arrived(self, name: str, batch: TupleBatch) -> None:
        """Tuples of a stream whose turn has come."""
        if self.paused:
            self._backlog.add(Step(self._passed(), name, batch))
            return
        self._work(self._arrived, name, batch)

    def fill(self, into: Into) -> None:
        """From now on rows go there, what waits first."""
        self.into = into
        self.regroup()
        for batch in self._found:
            into.take(batch)
        self._found.clear()
        self._handed = self.outputs
        into.flow()

    def flow(self) -> None:
        """Hand on what waits for the stream that the rows go to."""
        if self.into is not None:
            self._work(self.into.flow)

    def open_from(self, stream: LiveStream) -> int | None:
        """The first instant of a stream that can still come, for this query; None: any can."""
        del stream
        return None

    def takes_nothing_back(self) -> str | None:
        """What in the query has no way to take tuples back, in words; None: nothing."""
        return "an approximate query, whose outputs have no sign"

    def taken_back(self, name: str, gone: TakenBack) -> None:
        """Tuples of a stream are kept no more."""
        self._catch_up()
        self._work(self._taken_back, name, gone)

    def progress(self) -> None:
        """Emit what follows of how far the streams have come."""
        if self.paused:
            self._backlog.add(Step(self._passed()))
            return
        self._work(self._progress)

    @property
    def sharers(self) -> tuple[Subscription, ...]:
        """The standing queries that run on one plan with this one, itself among them, in the order they came to it."""
        return (self,)

    @property
    def part_sharers(self) -> tuple[Subscription, ...]:
        """The standing queries whose plans have a part (a join or set operation) that runs once for all of them, this
        one among them; () where none of its plan does.
        """
        return ()

    @property
    def nested_sharers(self) -> tuple[Subscription, ...]:
        """The standing queries whose plans have a GROUP BY or DISTINCT above their common part that runs once for all
        of them, too, this one among them; () where none of its plan does.
        """
        return ()

    @property
    def tuple_sharers(self) -> tuple[Subscription, ...]:
        """The standing queries whose joins read the tuples of two streams that are held once for all of them, whatever
        their windows, this one among them; () where its are held for it alone.
        """
        return ()

    @property
    def constraints(self) -> tuple[str, ...]:
        """The declared constraints it relies on, as text."""
        return ()

    def settle(self) -> None:
        """Work on all that waits in queues between its operators: a part of a change."""

    def end_together(self) -> None:
        """All standing queries end next."""

    def finish(self) -> None:
        """Emit what is left, and end: a part of a change."""
        self._catch_up()
        self._work(self._finish)
        self.flow()
        self._end()

    def close(self) -> None:
        """End the query: emits what is left.  Raises what a callback raises."""
        with self._lock:
            if self._commits.torn:
                self.detach()
            elif not self._closed:
                with self._commits:
                    self.finish()
            self._commits.complain()

    def attach(self, callback: Callable[[pa.RecordBatch], None]) -> None:
        """From now on call this with every batch; first with those that wait.  The next push raises what it raises."""
        self._check_here()
        with self._lock, INTERRUPTS:
            self._callback = callback
            self._commits.wake(self)
            self._commits.tell()

    def detach(self, *, left_to_store: bool = False) -> None:
        """Take leave of the streams without an end: nothing more comes.  left_to_store: one goes on with it."""
        with self._lock, INTERRUPTS:
            self._left_to_store = left_to_store
            self._end()

    @abstractmethod
    def capture(self) -> State:
        """All that is held, for `nile.execution.envelopes.flat` and `packed`."""

    @abstractmethod
    def _arrived(self, name: str, batch: TupleBatch) -> None:
        """Tuples of a stream whose turn has come."""

    def _taken_back(self, name: str, gone: TakenBack) -> None:
        """Tuples of a stream are kept no more."""
        raise NotImplementedError

    @abstractmethod
    def _progress(self) -> None:
        """Emit what follows of how far the streams have come."""

    @abstractmethod
    def _finish(self) -> None:
        """Emit what is left: no tuple will come any more."""

    def _work(self, step: Callable[..., None], *given: Any) -> None:
        """A part of a change, unless closed.  What it cannot do ends this query alone, and the push raises it."""
        if self._closed:
            return
        try:
            step(*given)
        except Exception as error:
            if isinstance(error, MemoryError) and not isinstance(error, NileError):
                raise  # not the fault of this query: the whole change is off
            error.add_note(f"a standing query over {', '.join(self._streams)} has ended by this")
            self._commits.fault(error)
            self._end()

    def fail(self, error: BaseException) -> None:
        """End: nothing more can come.  Who reads is told once, after what was found before."""
        with self._lock, INTERRUPTS:
            self._fault = error
            self._end()

    def _end(self) -> None:
        self._closed, self.paused = True, False
        for end in self.ending:
            end()
        self.ending = []
        self._say_more()

    def _passed(self) -> int | None:
        """The last instant that all streams have passed that go on; None before there is one, and once closed."""
        if self._replayed is not None:
            return None if self._closed else self._replayed.passed
        if self._closed:
            return None
        if len(self._streams) == 1:
            (only,) = self._streams.values()
            return None if only.closed or only.passed is None else only.passed - 1
        streams = self._streams.values()
        going = [stream for stream in streams if not (stream.closed or stream.at_will)]
        least: int | None = None
        for stream in going or [stream for stream in streams if not stream.closed]:
            if stream.passed is None:
                return None
            if least is None or stream.passed < least:
                least = stream.passed
        return None if least is None else least - 1

    def _mailbox(self) -> State:
        """Outputs so far, and those that nobody has read, for `capture`; of those in files only how many they are."""
        filed = sum(each.batch.num_rows for each in self._found.filed())
        said = {"outputs": self.outputs, "read": self._handed, "unread": joined(self._found.tail(), self.schema)}
        if self.paused:
            steps = self._backlog.capture()
            said["paused"] = {"steps": len(steps), "backlog": steps}
        return {**said, "filed": filed} if filed else said

    def _refill(self, held: Held) -> None:
        """Put back what `_mailbox` gave.  Raises EnvelopeError."""
        self.outputs = held.integer("outputs", 0, MOST)
        self._handed = held.integer("read", 0, self.outputs)
        filed = held.integer("filed", 0, self.outputs - self._handed) if held.has("filed") else 0
        found = held.rows("unread", self.schema, self.outputs - self._handed - filed)
        if found.num_rows:
            self._found.append(found)
        if held.has("paused"):
            paused, self.paused = held.part("paused"), True
            parts = paused.parts("backlog", paused.integer("steps", 0, MOST))
            self._backlog.restore(parts, {name: stream.schema for name, stream in self._streams.items()})
            paused.end()
