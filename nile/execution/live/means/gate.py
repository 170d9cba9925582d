"""Which tuples of its streams a plan takes in: all of them, or a sample whose rate may change with every push.

A tuple's coin is a hash of its place in its stream, of its key or of its values, never of how it came: at level k those
below 2**-k are let in, each with the weight 2**k, so that a sample of a higher level lies inside one of a lower.
Levels go up as long as state or time do not suffice (`bounds`), and what a level above 0 let in counts until it has
left the windows: until then the plan is approximate.
Source: Gibbons and Tirthapura, SPAA 2001, for nested samples by value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nile.exact.state.held import MOST, Held, State
from nile.execution.live.means.costs import Cost
from nile.execution.live.means.given import Given
from nile.execution.live.means.weighing import GROUP_OF, GROUPS, WEIGHT, Weighed
from nile.execution.values import value_of
from nile.operators.aggregate.input import units
from nile.streams.manager import TupleBatch
from nile.summaries.hashing import KeyHasher, hash_keys
from nile.summaries.heavy import pa

__all__ = ["MOST_LEVEL", "Gate", "hashed"]

Array = np.ndarray[Any, Any]
MOST_LEVEL = 20
_SLICES = 256
"""Batches of a stream that are told apart; older ones go together."""
_MARKS = 8
_UP, _DOWN = 0.7, 0.5
"""How fast a rate is believed that is above, or below, what was measured before."""
_SEED, _GROUP_SEED = 11, 29


def hashed(columns: list[pa.Array], hasher: KeyHasher, where: str) -> Array:
    """One hash of the values of each row: uint64 [n]."""
    out = np.zeros(len(columns[0]) if columns else 0, np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            out = out * np.uint64(0x9E3779B97F4A7C15) + hash_keys(column, hasher, where=where)
            out ^= out >> np.uint64(29)
    return out


@dataclass(slots=True)
class _Ledger:
    """Of one stream, batch by batch: when it ended (ns), tuples let in, the level.  came, took: all so far."""

    ends: list[int] = field(default_factory=list)
    took_in: list[int] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    came: int = 0
    took: int = 0
    begun: int | None = None
    rate: float = 0.0

    def add(self, end: int, came: int, took: int, level: int) -> None:
        self.came += came
        self.took += took
        if self.ends and (self.ends[-1] == end or len(self.ends) >= _SLICES):
            if self.ends[-1] != end:  # two old ones go together: the later end and the higher level of both
                self.ends.pop(0)
                self.took_in[1] += self.took_in.pop(0)
                self.levels[1] = max(self.levels.pop(0), self.levels[1])
            else:
                self.took_in[-1] += took
                self.levels[-1] = max(self.levels[-1], level)
                return
        self.ends.append(end)
        self.took_in.append(took)
        self.levels.append(level)

    def forget(self, before: int) -> None:
        """What ended before an instant is in no window."""
        gone = 0
        while gone < len(self.ends) and self.ends[gone] < before:
            gone += 1
        del self.ends[:gone], self.took_in[:gone], self.levels[:gone]


Ask = Callable[["Gate", str, int], int]


class Gate(Given):
    """In front of one plan, whoever shares it.

    ask: the level of a batch (stream, tuples).  weight: how much more than others it is worth.
    """

    def __init__(self, made: Weighed, positions: Mapping[str, int], hasher: KeyHasher, ask: Ask) -> None:
        super().__init__()
        self.made = made
        self.ask = ask
        self.weight = 1.0
        self.memory: Callable[[], int] = lambda: 0
        self._positions = dict(positions)
        self._hasher = hasher
        self._ledgers = {name: _Ledger() for name in positions}
        self.peak = 0
        """Most tuples that were held at once."""
        self.grown = 0
        """How many were held when the state last grew."""
        self.bytes = 0
        self.cost = Cost()
        """CPU time of a push, by the tuples that are let in."""
        self.jumps: list[int] = []
        """How many were held when tables doubled, of each the last time."""
        self.marks: list[tuple[int, int]] = []
        """(tuples held, bytes) of the plan, each time that half as many again were held."""
        self.tables_before = self.held_before = 0
        self.spent = 0.0
        self.took_before = 0

    def twin(self) -> Gate:
        """For a plan of equal state that goes its own way."""
        other = type(self)(self.made, self._positions, self._hasher, self.ask)
        other.weight, other.peak, other.grown, other.bytes = self.weight, self.peak, self.grown, self.bytes
        other.tables = self.tables
        other.cost = self.cost.twin()
        other._restore(self.capture())
        other.took_before = sum(other.took.values())
        return other

    def mark(self, held: int) -> None:
        """Note what its plan takes with so many tuples."""
        if held and (not self.marks or 2 * held >= 3 * self.marks[-1][0]):
            self.marks = [*self.marks[1 - _MARKS :], (held, self.bytes)]

    def grew(self, held: int) -> tuple[int, int] | None:
        """(tuples, bytes) that have come to its plan since it held at most half of what it holds; None: not known."""
        for many, size in reversed(self.marks):
            if 2 * many <= held:
                return held - many, max(0, self.bytes - size)
        return None

    def resumed(self) -> None:
        """Its plan holds what another process did: what comes now is measured beside that, not beside nothing."""
        self.tables, self.marks = self.peak, []
        self.made_anew()

    def made_anew(self) -> None:
        self.bytes, self.tables_before, self.jumps = self.memory(), self.tables, []
        self.grown = self.held_before = held = self.held()
        self.marks = [(many, size) for many, size in self.marks if many < held and size < self.bytes]
        self.took_before = sum(self.took.values())

    def alike(self, other: Gate) -> bool:
        """Whether of what both let in the same is in the windows, at the same levels; or nothing that was drawn."""
        if not self.level and not other.level:
            return True
        mine, theirs = self._ledgers, other._ledgers
        return all(
            (one.ends, one.took_in, one.levels) == (theirs[name].ends, theirs[name].took_in, theirs[name].levels)
            for name, one in mine.items()
        )

    @property
    def came(self) -> Mapping[str, int]:
        """Tuples that each stream brought."""
        return {name: each.came for name, each in self._ledgers.items()}

    @property
    def took(self) -> Mapping[str, int]:
        """Those that were let in."""
        return {name: each.took for name, each in self._ledgers.items()}

    def held(self, at: int | None = None) -> int:
        self._forget(at)
        return sum(sum(each.took_in) for each in self._ledgers.values())

    @property
    def level(self) -> int:
        """The highest whose tuples are in the windows; 0: the plan is exact."""
        return max((max(each.levels, default=0) for each in self._ledgers.values()), default=0)

    @property
    def at(self) -> int:
        return max((each.ends[-1] for each in self._ledgers.values() if each.ends), default=0)

    @property
    def last_level(self) -> int:
        return max(map(self.newest, self._ledgers), default=0)

    def newest(self, name: str) -> int:
        """The level of the newest batch of a stream."""
        levels = self._ledgers[name].levels
        return levels[-1] if levels else 0

    @property
    def rate(self) -> float:
        return sum(each.rate for each in self._ledgers.values())

    def note(self, name: str, batch: TupleBatch) -> None:
        """How fast a stream comes, of which this is the next batch, with tuples in it."""
        ledger, at = self._ledgers[name], int(batch.ts[-1])
        self.batch = len(batch)
        ledger.begun = int(batch.ts[0]) if ledger.begun is None else ledger.begun
        begun = ledger.ends[-1] if ledger.ends else ledger.begun
        now = len(batch) / max(at - begun, 1)
        ledger.rate += (_UP if now > ledger.rate else _DOWN) * (now - ledger.rate)

    def filled(self) -> None:
        """A batch was let in: what is held now, before what leaves has left, may be the most."""
        held = self.held()
        self.peak, self.tables = max(self.peak, held), max(self.tables, held)

    def passed(self, at: int) -> None:
        """All streams have passed an instant."""
        self._forget(at)

    def _forget(self, at: int | None) -> None:
        if at is not None and self.made.window is not None:
            for each in self._ledgers.values():
                each.forget(at - self.made.window)

    def let_in(self, name: str, batch: TupleBatch) -> tuple[Array, pa.RecordBatch]:
        """(times, columns and hidden ones) of the tuples of a batch that the plan takes in."""
        rows, n = batch.carried, len(batch)
        assert rows is not None
        at = int(batch.ts[-1]) if n else 0
        ledger = self._ledgers[name]
        if n:
            self.note(name, batch)
        level = min(self.ask(self, name, n), MOST_LEVEL) if n else 0
        ts, yes, hashes = batch.ts, None, None
        if level:
            if self.made.drawn == "tuples":
                words = np.arange(batch.ordinal + 1, batch.ordinal + 1 + n, dtype=np.uint64)
                yes = units(words, _SEED + 1_000_003 * self._positions[name]) < 2.0**-level
            else:
                columns = [value_of(item, rows) for item in self.made.values[name]]
                hashes = hashed(columns, self._hasher, f"stream '{name}'")
                yes = units(hashes, _SEED) < 2.0**-level
                hashes = hashes[yes]
            ts, rows = ts[yes], rows.filter(pa.array(yes))
        ledger.add(at, n, len(ts), level)
        self.filled()
        if self.made.drawn != "values":
            rows = rows.append_column(WEIGHT, pa.array(np.full(len(ts), 1 << level)))
        if self.made.drawn == "keys":
            group = np.full(len(ts), -1) if hashes is None else (units(hashes, _GROUP_SEED) * GROUPS).astype(np.int64)
            rows = rows.append_column(GROUP_OF, pa.array(group))
        return ts, rows

    def below(self, hashes: Array, level: int) -> Array:
        """Which values a sample of a level has: bool [n]."""
        return np.asarray(units(hashes, _SEED) < 2.0**-level)

    def capture(self) -> State:
        """What was let in of each stream and is in the windows."""
        return {
            name: {
                "came": each.came,
                "took": each.took,
                "begun": each.begun,
                "batches": len(each.ends),
                "ends": np.array(each.ends, np.int64),
                "in": np.array(each.took_in, np.int64),
                "levels": np.array(each.levels, np.int64),
            }
            for name, each in self._ledgers.items()
        }

    def _restore(self, state: State) -> None:
        held = Held(state, "state of a sampled query")
        self.restore(held)

    def restore(self, held: Held) -> None:
        """Raises EnvelopeError."""
        for name, each in self._ledgers.items():
            part = held.part(name)
            each.came = part.integer("came", 0, MOST)
            each.took = part.integer("took", 0, each.came)
            each.begun = part.integer_or_none("begun")
            shape = (part.integer("batches", 0, _SLICES),)
            each.ends = part.array("ends", "int64", shape).tolist()
            each.took_in = part.array("in", "int64", shape).tolist()
            each.levels = part.array("levels", "int64", shape).tolist()
            if any(not 0 <= level <= MOST_LEVEL for level in each.levels) or any(took < 0 for took in each.took_in):
                part.refuse(f"levels from 0 to {MOST_LEVEL} and counts of tuples", "others")
            part.end()
        held.end()
