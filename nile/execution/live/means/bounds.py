"""How much of what comes the standing queries of a database take in, so that memory and CPU time stay in bounds.

Memory.  What a plan holds grows with the tuples in its windows, in steps of twice as much, since tables double.  So a
plan may hold as many tuples as it ever did, and twice as many only if twice its bytes leave the bound kept, or a table
has doubled just now.  A stream
whose tuples, as fast as they come now, would not all fit into its window is sampled, so that those that are let in do
for as long as it goes on; what was there before leaves meanwhile.
CPU time.  Credit comes in as the clock goes on and every push spends what it took; a push may spend half of the credit
there is.  What a tuple costs each plan, and the push itself, and what both cost without one, is measured while it runs.
While credit is left over, samples grow, whatever was measured: what costs least is learnt by doing it.
Both are dealt out by the weights of queries: who needs less than its part leaves the rest to the others.
Source: STREAM (CIDR 2003), sections 5.2 and 5.4, which leave open when reduction begins and how it ends.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nile.exact.join.threads import cpu_seconds
from nile.execution.live.means.costs import Cost
from nile.execution.live.means.dealing import deal
from nile.execution.live.means.gate import MOST_LEVEL, Gate
from nile.execution.live.means.given import SAFE

__all__ = ["Means"]

_FILL = 0.95
"""Of the bound on memory: how much is used by plan, since a push is let in before its bytes are known."""
_BYTES = 1024
"""At most of a tuple, as long as tables are small."""
_JUMP = 1.1
"""Times as many bytes for as many tuples after a push: a table has doubled, and does so next at twice as many."""
_FARTHEST = 4.0
"""Times as many tuples as ever before, at most, by what they took so far."""
_SOON = 8.0
"""Pushes of this size that there is room for at least: then no rate has to be looked at."""
_FASTER = 1.1
"""Times the rate, at most, for which a plan was given memory."""
_LEARN = 0.3
_OFTEN = 8
"""Pushes after which what is free is dealt out, at least; as many as there are plans, if these are more."""
_STEPS = (0.125, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 7.0, 11.0, 15.0)
"""Of what a plan holds: bytes that its next steps may take."""
_BURST = 1.0
"""Seconds for which CPU credit is saved up, and for which at most it is owed."""
_PLENTY = 0.5
"""Of the credit that can be saved up: with more, a sample grows."""


class Means:
    """The bounds of one database.  memory: bytes, None without; cpu: of one core, None without.

    clock, meter: seconds of the wall's clock and of work, this thread's and of those that help it; others: bytes held
    by what is not sampled.
    """

    def __init__(
        self,
        memory: int | None,
        cpu: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        meter: Callable[[], float] = cpu_seconds,
    ) -> None:
        self.memory = memory
        self.cpu = cpu
        self.clock = clock
        self.meter = meter
        self.others: Callable[[], int] = lambda: 0
        self._gates: list[Gate] = []
        self._credit: float | None = None
        self._seen = 0.0
        self._gap = 0.0
        self._begun = 0.0
        self._in_plans = 0.0
        self._most = 0.0
        self._around = Cost()
        self._inside, self._charged, self._rest, self._tuples = False, 0.0, 0.0, 0
        self._besides = 0
        self._pushes = 0
        self._reserved = self._kept = 0.0
        """Bytes that plans were given and do not hold yet, and that are kept for the others."""
        self.deals = True
        """Whether memory that equal parts leave unused is dealt out."""

    def add(self, gate: Gate) -> None:
        """One more plan."""
        self._gates.append(gate)

    def remove(self, gate: Gate) -> None:
        """One that has ended, or shares another."""
        self._gates = [each for each in self._gates if each is not gate]

    @property
    def gates(self) -> tuple[Gate, ...]:
        """Those of all plans that may be sampled."""
        return tuple(self._gates)

    @property
    def held(self) -> int:
        """Bytes that all held after the last push."""
        return self._besides + sum(each.bytes + each.apart for each in self._gates)

    @property
    def besides(self) -> int:
        """Bytes among them that sampling cannot lessen."""
        return self._besides

    @contextmanager
    def charged(self) -> Iterator[None]:
        """Around a push: what it takes beside `begin` to `end` is spent, too (reading rows, telling callbacks)."""
        if self._inside:  # of a push that a callback makes
            yield
            return
        begun = self.meter()
        self._inside, self._charged, self._rest, self._tuples = True, 0.0, 0.0, 0
        try:
            yield
        finally:
            self._inside = False
            beside = max(0.0, self.meter() - begun - self._charged)
            self._spend(beside)
            self._around.add(self._tuples, self._rest + beside)

    def _spend(self, seconds: float) -> None:
        if self.cpu is not None and self._credit is not None:
            self._credit = max(self._credit - seconds, -self.cpu * _BURST)

    def begin(self) -> None:
        """A change begins."""
        if self.cpu is not None:
            now = self.clock()
            if self._credit is None:
                self._credit = self._most = self.cpu * _BURST
            else:
                passed = max(0.0, now - self._seen)
                self._gap += _LEARN * (passed - self._gap)
                self._most = self.cpu * max(_BURST, 2.0 * self._gap)
                self._credit = min(self._most, self._credit + self.cpu * passed)
            self._seen = now
        self._besides = self.others()
        self._pushes += 1
        if self.memory is not None and self.deals and self._pushes >= max(_OFTEN, len(self._gates)):
            self._pushes = 0
            self._reserved = sum(each.reserved for each in self._gates)
            spare = self.memory * _FILL - self.held - self._reserved
            deal(self._gates, spare, self._step, _BYTES * max((each.batch for each in self._gates), default=0))
            self._reserved = sum(each.reserved for each in self._gates)
            self._kept = sum(each.kept for each in self._gates)
        self._begun, self._in_plans = self.meter(), 0.0

    def end(self, tuples: int) -> None:
        """It has ended, and brought so many tuples."""
        for gate in self._gates:
            self._measured(gate)
        self._besides = self.others()
        spent = self.meter() - self._begun
        self._spend(spent)
        self._charged += spent
        self._rest += max(0.0, spent - self._in_plans)
        self._tuples += tuples

    def _measured(self, gate: Gate) -> None:
        took = sum(gate.took.values())
        if gate.spent:
            gate.cost.add(took - gate.took_before, gate.spent)
            gate.spent = 0.0
        gate.took_before = took
        held, there = gate.held(), gate.memory()
        if there > gate.bytes:
            gate.grown = held
        if there > _JUMP * gate.bytes * max(1.0, held / max(gate.held_before, 1)) > 0:
            again = [each for each in gate.jumps if 1.8 * each <= gate.tables_before <= 2.2 * each]
            if again:
                gate.jumps.remove(again[0])
            gate.jumps.append(gate.tables_before)
        gate.jumps = [each for each in gate.jumps if each >= gate.tables / 2]
        gate.bytes, gate.tables_before, gate.held_before = there, gate.tables, held
        gate.mark(held)

    def spent(self, gate: Gate, seconds: float) -> None:
        """What a plan took, and handing out what it found."""
        self._in_plans += seconds
        gate.spent += seconds

    def level(self, gate: Gate, name: str, tuples: int) -> int:
        """Of a batch of a stream: 0 takes all of it in, k a share of 2**-k."""
        room, time_for = self._by_memory(gate, name, tuples), self._by_cpu(gate, name, tuples)
        gate.short = room < min(tuples, time_for)
        if self._credit is not None and self._credit > _PLENTY * self._most and gate.newest(name):
            time_for = max(time_for, tuples / 2.0 ** (gate.newest(name) - 1))
        allowed = min(room, time_for)
        if allowed >= tuples:
            return 0
        return min(MOST_LEVEL, math.ceil(math.log2(tuples / max(allowed, 1.0))))

    def _part(self, gate: Gate) -> float:
        """Bytes of what is left for all that are for a plan, and what it was given."""
        assert self.memory is not None
        left = max(0.0, self.memory * _FILL - self.held - self._reserved)
        kept, share = self._kept, gate.weight / sum(each.weight for each in self._gates)
        if kept > left:
            return gate.kept * left / kept + gate.reserved
        return gate.kept + (left - kept) * share + gate.reserved

    def room(self, gate: Gate, tuples: int = 0, most: float = math.inf) -> float:
        """Bytes that a plan may hold, what it holds now among them; inf without a bound.

        most: bytes for a tuple of its windows, as fast as they come, of which more are of no use to it; of the batch as
        in `level`.
        """
        window, room = gate.made.window, self._room(gate)
        if window is None or math.inf in (most, room):
            return room
        return min(room, most * max(gate.held(), gate.rate * window + tuples))

    def _room(self, gate: Gate) -> float:
        if self.memory is None:
            return math.inf
        return self._part(gate) - gate.reserved + gate.bytes + gate.apart - gate.lent

    def fits(self, gate: Gate, name: str, tuples: int, each: float, apart: int) -> bool:
        """Whether, as fast as they come, all tuples of the windows would find room beside what a plan holds apart.

        each: bytes of one; apart: as if it held so many bytes there; of the batch as in `level`.
        """
        rate, window = gate.rate, gate.made.window
        if self._by_cpu(gate, name, tuples) < tuples or window is None:
            return False
        room = self._room(gate)
        return gate.bytes + apart <= room and (rate * window + tuples) * each <= SAFE * (room - apart)

    def _by_memory(self, gate: Gate, name: str, tuples: int) -> float:
        """How many of the tuples there is room for."""
        if self.memory is None:
            return math.inf
        held, there = gate.held(), gate.memory()
        spare = self.memory * _FILL - self.held
        if spare < 0:
            return tuples / 2.0 ** (gate.newest(name) + 1)
        part = self._part(gate)
        if gate.tables == 0:
            return math.inf if tuples <= part / _BYTES else part / _BYTES
        if held >= 4 * max(gate.grown, 1) and there <= gate.bytes:
            return math.inf  # its state does not grow with what comes
        limit = gate.limited(self._limit(gate, held, there, part))
        if not gate.goal and held + tuples <= limit and tuples * _BYTES <= part / _SOON:
            return math.inf  # the next push is measured again
        window = gate.made.window
        if window is None:
            return math.inf if limit > 8 * (held + tuples) else max(0.0, limit - held) / 8.0
        share = limit / (gate.rate * window + tuples)
        if share >= 1.0 and held + tuples <= limit:
            return math.inf
        usual = SAFE * share * tuples
        if gate.lean:
            return usual  # what is held beyond that leaves
        usual, given = min(usual, max(0.0, limit - held)), tuples / 2.0**gate.down
        if gate.goal and held + given <= limit and share >= given / (_FASTER * tuples):
            return max(given, usual)
        return usual

    def _limit(self, gate: Gate, held: int, there: int, part: float) -> float:
        """How many tuples a plan may hold in `part` bytes more than now, which are `there`."""
        limit = gate.tables * 2.0 ** int(math.log2((part + there) / max(there, 1)))
        limit = max(limit, gate.tables + (part - there) / _BYTES, 2.0 * SAFE * min(gate.jumps, default=0))
        return max(limit, self._foreseen(gate, held, part))

    def _step(self, gate: Gate, tuples: float, safe: float = 1.0) -> tuple[float, float]:
        """(bytes more with which a plan may hold so many tuples, tuples that it then may hold); inf, 0: not known, or
        far more bytes than it holds.

        safe: of the tuples that there is room for.
        """
        held, there = gate.held(), gate.memory()
        for part in (share * there for share in _STEPS):
            if safe * (limit := self._limit(gate, held, there, part)) >= tuples:
                return part, limit
        return math.inf, 0.0

    def lends(self, gate: Gate) -> int:
        """How often a filter is to be doubled beyond what equal parts let it have."""
        return gate.doublings

    @staticmethod
    def _foreseen(gate: Gate, held: int, part: float) -> float:
        """How many tuples a plan may hold in `part` bytes more than now, by what the last twice as many of them took.

        What did not grow meanwhile does not grow with tuples.  Where a table doubled it doubles again, all of it at
        once; where none did, a tuple more takes what one took, and small tables a little.
        """
        if (found := gate.grew(held)) is None:
            return 0.0
        tuples, size = found
        if gate.jumps:
            return gate.tables * 2.0 ** int(math.log2(1.0 + part / max(2.0 * size, 1.0)))
        more = part - (_JUMP - 1.0) * gate.bytes
        return min(held + more * tuples / max(size, 1), _FARTHEST * gate.tables)

    def _by_cpu(self, gate: Gate, name: str, tuples: int) -> float:
        """How many of the tuples there is time for."""
        if self.cpu is None or self._credit is None or not gate.cost.known:
            return math.inf
        asking = [each for each in self._gates if name in each.came]
        apart = self._around.of(tuples) + sum(each.cost.fixed for each in asking)
        left = max(0.0, self._credit / 2.0 - apart)
        needs = {id(each): tuples * each.cost.each for each in asking}
        waiting = sorted(asking, key=lambda each: needs[id(each)] / each.weight)
        weights = sum(each.weight for each in asking)
        for each in waiting:
            fair = left * each.weight / weights if weights else 0.0
            given = min(needs[id(each)], fair)
            if each is gate:
                return math.inf if given >= needs[id(each)] else given / gate.cost.each
            left -= given
            weights -= each.weight
        return math.inf
