"""The standing queries of a database: all of them, the named ones, and operations on all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nile.base.machine import memory_bytes
from nile.base.names import check_name
from nile.base.sizes import format_size
from nile.exact.plan.constraints import StreamConstraint
from nile.execution.definitions import QueryDefinition
from nile.execution.live.exact_subscription import ExactSubscription
from nile.execution.live.indexed.selecting import LEAST, Selecting
from nile.execution.live.means.bounds import Means
from nile.execution.live.scheduled import Schedule, Scheduled, plans_of
from nile.execution.live.shared.ahead import work_ahead
from nile.execution.live.shared.common import parts_of
from nile.execution.live.shared.sharing import Sharing
from nile.execution.live.subscription import Subscription
from nile.execution.live.unread import Files
from nile.streams.live import LiveStream
from nile.streams.manager import TupleBatch
from nile.streams.taken_back import TakenBack
from nile.summaries.errors import ConfigError, Overloaded, UnknownStream
from nile.summaries.heavy import pa

__all__ = ["Subscriptions"]

_ABREAST = 4096
"""Tuples of a batch from which on it is worth asking whether threads work on it."""
_LOOK_EVERY = 1 << 16
"""Tuples of a stream between two looks at what its standing queries hold."""
_STATE_SHARE = 4
"""Of this machine's memory: what a standing query's state may take, where `memory=` says nothing."""


class Subscriptions:
    """Standing queries in the order in which they were asked.  Not safe for threads: used under the lock of `Live`."""

    def __init__(self, scheduled: Scheduled | None = None, threads: int | None = None) -> None:
        """threads: that may work on plans at once, None for all cores."""
        self._threads = threads
        self.scheduled = Scheduled(Schedule()) if scheduled is None else scheduled
        self._running: list[Subscription] = []
        self._named: dict[str, tuple[QueryDefinition, Subscription]] = {}
        self._looked: dict[str, int] = {}
        self._groups: list[Selecting] = []
        self._known_units: list[Subscription | Selecting] = []
        self._told_of: dict[str, tuple[LiveStream, list[Subscription | Selecting]]] = {}
        self._filling: list[Subscription] = []
        self._stale = False
        self.sharing = Sharing()

    def add(self, made: Subscription, name: str | None = None, definition: QueryDefinition | None = None) -> None:
        """One more; with a name, and what was asked, it can be found again."""
        self._running = [*(one for one in self._running if not one.closed), made]
        if name is not None and definition is not None:
            self._named[name] = (definition, made)
        made.regroup = self._regroup
        self._regroup()
        self.sharing.add(made)

    def _regroup(self) -> None:
        """Which selections an index finds the rows of is looked at again before the next tuples."""
        self._stale = True

    def _units(self) -> list[Subscription | Selecting]:
        """Who is told of tuples: queries, and indexes of many selections in the place of the first of them."""
        if not self._stale:
            return self._known_units
        together: dict[int, list[ExactSubscription]] = {}
        for one in self._running:
            if isinstance(one, ExactSubscription) and one.sought:
                together.setdefault(id(one.plan), []).append(one)
        wanted = {key: some for key, some in together.items() if len(some) >= LEAST}
        kept: dict[int, Selecting] = {}
        for group in self._groups:
            key = id(group.plan)
            if key in wanted and group.members == wanted[key]:
                kept[key] = group
            else:
                group.dissolve()
        for key, some in wanted.items():
            if key not in kept:
                kept[key] = Selecting(some[0].plan, some)
        self._groups = list(kept.values())
        grouped = {id(one): group for group in kept.values() for one in group.members}
        units: dict[int, Subscription | Selecting] = {}
        for one in self._running:
            unit = grouped.get(id(one), one)
            units[id(unit)] = unit
        self._filling = [one for one in self._running if one.into is not None]
        self.scheduled.follow(self._running)
        self._known_units, self._told_of, self._stale = list(units.values()), {}, False
        return self._known_units

    def schedule(self, asked: Schedule) -> None:
        """Schedule otherwise from now on: a part of a change.  Raises ConfigError."""
        self.sharing.part()
        self.scheduled.ask(asked)
        self._regroup()
        self._units()

    def work(self, seconds: float | None = None) -> None:
        """Run operators that the scheduler let wait: a part of a change.  seconds: of CPU, None: its quantum."""
        self.scheduled.work(self._running, seconds)

    @property
    def waits(self) -> bool:
        """Whether operators have something to do."""
        return self.scheduled.waits(self._running)

    @property
    def waiting(self) -> tuple[int, int]:
        """(tuples, bytes) that wait for operators."""
        return self.scheduled.waiting(self._running)

    def settle_all(self) -> None:
        """Work on all that waits for operators: a part of a change."""
        for plan in plans_of(self._running):
            plan.settle()

    def snapshot(self) -> tuple[list[Subscription], dict[str, tuple[QueryDefinition, Subscription]]]:
        """All there are, for `go_back`."""
        return list(self._running), dict(self._named)

    def go_back(self, before: tuple[list[Subscription], dict[str, tuple[QueryDefinition, Subscription]]]) -> None:
        """Have those again that a snapshot has; who came since ends without telling anything."""
        came = [one for one in self._running if one not in before[0]]
        self._running, self._named = list(before[0]), dict(before[1])
        self._regroup()
        for one in came:
            one.detach()

    def aside(self, standing: Subscription) -> None:
        """It goes on, but nobody knows it: what takes its name comes, and then it is closed."""
        self._named = {name: pair for name, pair in self._named.items() if pair[1] is not standing}

    def named(self) -> dict[str, tuple[QueryDefinition, Subscription]]:
        """Those that have a name and are open: what was asked, and the query."""
        self._named = {name: pair for name, pair in self._named.items() if not pair[1].closed}
        return dict(self._named)

    def get(self, name: str) -> Subscription:
        """The one of this name.  Raises UnknownStream."""
        named = self.named()
        check_name(name, where="standing query")
        if name not in named:
            known = ", ".join(named) or "none"
            raise UnknownStream(
                f"standing query {name!r}: needed one of those with a name ({known}); make it with "
                f"db.subscribe(text, name={name!r})"
            )
        return named[name][1]

    def redefine(self, name: str, definition: QueryDefinition) -> None:
        """What is remembered of a standing query that has changed its plan."""
        self._named[name] = (definition, self._named[name][1])

    def asked_again(self, name: str | None, definition: QueryDefinition) -> Subscription | None:
        """The one that has this name already; None: there is none.  Raises ConfigError for another query."""
        named = self.named()
        if name is None or name not in named:
            return None
        known, held = named[name]
        if known != definition:
            raise ConfigError(
                f"standing query {name!r}: needed the query that has this name, {known.text!r}; got "
                f"{definition.text!r} or other options; close that one, or take another name"
            )
        return held

    def check_free(self, stream: LiveStream, *, fills: bool = True) -> None:
        """That a live stream may go, or be replaced.  fills: whether queries that fill it count too.

        Raises ConfigError.
        """
        stream.check_whole("DROP")
        named = self.named()
        users = [name for name, (_, made) in named.items() if _reads(made, stream) or (fills and _fills(made, stream))]
        if users:
            raise ConfigError(
                f"stream '{stream.name}': needed a stream that no standing query with a name reads or fills, before it "
                f"can go; got {', '.join(map(repr, users))}; close it first: db.subscription({users[0]!r}).close()"
            )

    def filled_from(self, stream: LiveStream) -> list[LiveStream]:
        """A stream and those that queries fill from it, each after one that it is filled from."""
        self._units()
        found = [stream]
        for each in found:
            targets = [one.into.target for one in self._filling if one.into is not None and _reads(one, each)]
            found += [target for target in dict.fromkeys(targets) if target not in found]
        return found

    def in_order(self, streams: Iterable[LiveStream]) -> list[LiveStream]:
        """Streams, each after those that it is filled from."""
        order: list[LiveStream] = []
        for stream in streams:
            reached = self.filled_from(stream)
            order = [*(each for each in order if each not in reached), *reached]
        return order

    def filled(self, stream: LiveStream) -> list[Subscription]:
        """The standing queries whose rows go to a stream."""
        return [one for one in self._running if not one.closed and _fills(one, stream)]

    def arrived(self, stream: LiveStream, name: str, batch: TupleBatch) -> None:
        """Tuples of a stream whose turn has come, for all that read it."""
        units = self._units()
        known = self._told_of.get(name)
        if known is None or known[0] is not stream:
            known = self._told_of[name] = stream, [unit for unit in units if unit.streams.get(name) is stream]
        units = known[1]
        ahead = work_ahead(units, name, batch, self._threads) if len(units) > 1 and len(batch) >= _ABREAST else []
        for unit in units:
            unit.arrived(name, batch)
        for plan in ahead:
            plan.formed = None
        batch.shared.clear()
        self._flow()

    def punctuate(self, constraint: StreamConstraint, at: int, rows: pa.RecordBatch) -> None:
        """After an instant no tuple of these values comes to the stream of a constraint: each plan hears of it once."""
        plans = {
            id(one.plan): one.plan for one in self._running if isinstance(one, ExactSubscription) and not one.closed
        }
        for plan in plans.values():
            plan.settle()
            plan.pipeline.punctuate(constraint, at, rows)

    def check_taking_back(self, stream: LiveStream) -> None:
        """That all which read a stream can take tuples of it back.  Raises ConfigError."""
        readers = [one for one in self._running if not one.closed and _reads(one, stream)]
        mined = "a table function" if any(stream not in one.streams.values() for one in readers) else None
        if (what := next(filter(None, (mined, *(one.takes_nothing_back() for one in readers))), None)) is not None:
            raise ConfigError(
                f"stream '{stream.name}': needed standing queries that can correct what they told, to take rows back; "
                f"got {what}; close that one first"
            )

    def taken_back(self, stream: LiveStream, gone: TakenBack) -> None:
        """Tuples of a stream are kept no more, for all that read it."""
        self.sharing.part(stream)
        for standing in self._running:
            if standing.streams.get(stream.name) is stream:
                standing.taken_back(stream.name, gone)
        self._flow()

    def all(self) -> list[Subscription]:
        """All, in the order in which they were asked."""
        return list(self._running)

    def over(self) -> list[Mapping[str, LiveStream]]:
        """The streams of each."""
        return [standing.streams for standing in self._running]

    def reached(self, stream: LiveStream) -> None:
        """Let those who read a stream emit what follows of how far it has come."""
        for unit in self._units():
            if unit.streams.get(stream.name) is stream:
                unit.progress()
        self._flow()

    def progress(self) -> None:
        """Let each emit what follows of how far its streams have come."""
        for unit in self._units():
            unit.progress()
        self._flow()

    def _flow(self) -> None:
        """Hand on the rows of queries that fill a stream, now that all who read what they are made of have that."""
        self.sharing.look()
        self._units()
        for standing in list(self._filling):
            standing.flow()

    def wait_for_readers(self, stream: LiveStream) -> None:
        """Before a stream takes rows: that no query with a limit has too much unread.  Waiting lets go of the lock.

        Raises Overloaded for a query that refuses.
        """
        reached = self.filled_from(stream)
        while full := [one for one in self._full() if any(_reads(one, each) for each in reached)]:
            for standing in full:
                standing.wait_for_reader()

    def _full(self) -> list[Subscription]:
        """Those with too much unread."""
        out: list[Subscription] = []
        for unit in self._units():
            if isinstance(unit, Selecting):
                out += [one for one in unit.full() if isinstance(one, Subscription)]
            elif unit.full:
                out.append(unit)
        return out

    def besides(self) -> int:
        """Bytes of outputs that wait, and of the state of those that are never sampled."""
        plans = plans_of(self._running)
        held = sum(plan.memory for plan in plans) + sum(memory for memory, _ in parts_of(plans))
        others = sum(one.memory for one in self._running if not isinstance(one, ExactSubscription) and not one.closed)
        return others + held + sum(one.unread_bytes + one.waiting_bytes for one in self._running)

    def check_state(self, stream: LiveStream, memory: int | None, means: Means | None = None) -> None:
        """Before a stream takes rows, now and then: that no query over it holds more than `memory`, or its share.

        memory: what kept rows may take, bytes; None without such a limit: a share of the machine;
        means: the bounds of the database: that what is never sampled leaves them kept.  Raises Overloaded.
        """
        if means is not None and means.memory is not None and means.besides > means.memory:
            raise Overloaded(
                f"push: needed less than {format_size(means.memory)} of what standing queries hold that is never "
                f"sampled (outputs that nobody reads, queries such as outer joins); got "
                f"{format_size(means.besides)}; nothing was taken: poll() or close() some, then push the same again, "
                "or connect with more memory"
            )
        seen = stream.accounting.tuples_in // _LOOK_EVERY
        if self._looked.get(stream.name) == seen:
            return
        most, told = memory_bytes() // _STATE_SHARE, "a quarter of this machine's memory"
        if memory is not None and memory < most:
            most, told = memory, "by the memory= that the database was opened with"
        reached = self.filled_from(stream)
        for unit in self._units():
            standing = unit.first if isinstance(unit, Selecting) else unit  # of equal plans once
            if not isinstance(standing, Subscription) or standing.closed:
                continue
            if not any(_reads(standing, each) for each in reached):
                continue
            if (held := standing.memory + standing.waiting_bytes) > most:
                raise Overloaded(
                    f"push: needed less than {format_size(most)} of state of a standing query over "
                    f"{', '.join(standing.streams)}, {told}; got {format_size(held)}; "
                    "nothing was taken: close() it, or ask it with a WINDOW, or group by fewer keys"
                )
        self._looked[stream.name] = seen

    def settle(self, files: Files, most: int) -> None:
        """Before rows are taken: move outputs that nobody reads to files, where all take more than `most` bytes.

        Raises StoreWriteError.
        """
        if sum(standing.unread_bytes for standing in self._running) > most:
            for standing in self._running:
                standing.seal(files, most // (2 * len(self._running)))

    def finish(self) -> None:
        """End each: a part of a change."""
        for standing in self._running:
            standing.end_together()
        for standing in self._running:
            standing.finish()
        self._forget()

    def detach(self, *, stored: bool) -> None:
        """Let each go without an end: a store goes on with those that have a name, and with what they hold unread."""
        named = [held for _, held in self.named().values()] if stored else []
        for standing in self._running:
            standing.detach(left_to_store=standing in named)
        self._forget()

    def _forget(self) -> None:
        self._running.clear()
        self._named.clear()
        self._groups.clear()
        self._regroup()


def _fills(standing: Subscription, stream: LiveStream) -> bool:
    """Whether a query's rows go to a stream."""
    return standing.into is not None and standing.into.target is stream


def _reads(standing: Subscription, stream: LiveStream) -> bool:
    """Whether a query reads a stream, or what is made of it."""
    return any(stream in (each, each.base) for each in standing.streams.values())
