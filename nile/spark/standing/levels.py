"""How the parts of a `weighted` join share one budget: by which keys are in the sample.

One process has one rate for all tuples, which follows the mean of what they are granted.  Parts that each followed
their own would have rates that differ, and errors that do not cancel; so tasks that deal tuples out count pairs, all
parts follow the mean of all, and a part is granted what its tuples cost at these rates.
A sample of keys takes in those whose number, which the hash tells, lies below a level
(`nile.preferences.follow_kernels`): as many as the level says, more or less by chance.  One process spends what some
keys do not ask for on others; parts would leave it, or thin the tuples of too many keys.  So tasks count tuples by the
numbers of their keys, too, and a part is granted as much of what all are granted as it has of those below the level.
The level itself follows what would be granted without that: so no coin has a say in it, and the mean stays right.
Before the first tuple the same counts tell how many matches are to be expected, which one process has to guess.
Source: Cochran, Sampling Techniques, 1977, chapter 9 (clusters); AMS, STOC 1996 (the size of a join, from counts).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.spark.standing.dealing import parts_of
from nile.summaries.costs import CostTable
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.spark.standing import level_kernels
else:
    level_kernels = lazy("nile.spark.standing.level_kernels")

__all__ = ["Levels", "matches_of", "shares_of", "span_of"]

Array = np.ndarray[Any, Any]
SLOTS = 1 << 10
"""Classes of hashes that pairs are counted by."""
_EVEN = 0.02
"""Share of the budget that is dealt out evenly: a part without a key below the level needs a little if that rises."""
_FIELDS = ("own", "every", "own_slots", "slots")


@dataclass(frozen=True, slots=True)
class Levels:
    """What a task counted of a stream, as one part is told.

    own, every: float64 [classes], the tuples of the part and of all parts by the class of their key's number;
    own_slots, slots: float64 [SLOTS], the same tuples by their key's hash; first, last: their times, ns.
    """

    own: Array
    every: Array
    own_slots: Array
    slots: Array
    first: int
    last: int

    @classmethod
    def of(cls, hashes: Array, ts: Array, parts: int, salt: int) -> list[Levels]:
        """For each part.  hashes: uint64 [n], of the keys; ts: int64 [n] ns, n > 0."""
        classes = level_kernels.OCTAVES * level_kernels.AN_OCTAVE + 1
        number = np.empty(hashes.shape[0], np.int64)
        level_kernels.classes_of(hashes, salt, number)
        counts = np.bincount(parts_of(hashes, parts) * classes + number, minlength=parts * classes)
        table = counts.reshape(parts, classes).astype(float)
        part, slot = parts_of(hashes, parts), (hashes >> np.uint64(54)).astype(np.int64)
        slots = np.bincount(part * SLOTS + slot, minlength=parts * SLOTS).reshape(parts, SLOTS).astype(float)
        every, times = (table.sum(axis=0), slots.sum(axis=0)), (int(ts.min()), int(ts.max()))
        return [cls(own, every[0], mine, every[1], *times) for own, mine in zip(table, slots, strict=True)]

    def batch(self) -> pa.RecordBatch:
        """For `from_batch`."""
        lists = [pa.array([getattr(self, name)], pa.list_(pa.float64())) for name in _FIELDS]
        ends = [pa.array([self.first]), pa.array([self.last])]
        return pa.RecordBatch.from_arrays([*lists, *ends], names=[*_FIELDS, "first", "last"])

    @classmethod
    def from_batch(cls, batch: pa.RecordBatch) -> Levels:
        """What `batch` gave."""
        lists = [batch.column(at)[0].values.to_numpy(zero_copy_only=False) for at in range(4)]
        first, last = (batch.column(at)[0].as_py() for at in (4, 5))
        return cls(lists[0], lists[1], lists[2], lists[3], first, last)


def shares_of(
    counts: Sequence[tuple[int, Levels]], met: tuple[tuple[float, float], tuple[float, float]], costs: CostTable,
    level: float, kept: float, drawn: float,
) -> tuple[float, float]:  # fmt: skip
    """What a part's grant is multiplied by, and what the mean grant of all parts' tuples is of that of its own.

    counts: of all tasks of a micro-batch, by stream; met: `matches_of` them; level, kept, drawn: the rates.
    Law: over all parts of the same rates, the first of what each grants gives what all grant.
    """
    own, every = (np.sum([getattr(each, name) for _, each in counts], axis=0) for name in ("own", "every"))
    below = _below(level)
    among = float(every @ below) * float(own.sum())
    share = float(own @ below) * float(every.sum()) / among if among else 1.0
    taking = costs.insert + costs.lookup
    (_, of_all), (_, of_own) = met
    exact = [taking + each * costs.emit for each in (of_all, of_own)]
    spent = [taking + kept * drawn * each * costs.emit for each in (of_all, of_own)]
    share *= spent[1] / exact[1] * exact[0] / spent[0]
    return _EVEN + (1.0 - _EVEN) * share, exact[0] / exact[1]


def matches_of(counts: Sequence[tuple[int, Levels]], window: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """(tuples, how many matches one of two streams has when it comes, on average, once a window has passed): of all
    parts, and of the one that is told.

    Pairs of equal slots, less those that slots share by chance: without bias.
    """
    close = 2.0 * window / span_of(counts)
    found = []
    for name in ("slots", "own_slots"):
        slots = np.zeros((2, SLOTS))
        for stream, each in counts:
            slots[stream] += getattr(each, name)
        tuples = slots.sum(axis=1)
        pairs = max(0.0, (float(slots[0] @ slots[1]) - tuples[0] * tuples[1] / SLOTS) / (1.0 - 1.0 / SLOTS))
        found.append((float(tuples.sum()), pairs * close / max(1.0, float(tuples.sum()))))
    return found[0], found[1]


def span_of(counts: Sequence[tuple[int, Levels]]) -> int:
    """How far apart the tuples of a micro-batch are: ns, at least 1."""
    return max(1, max(each.last for _, each in counts) - min(each.first for _, each in counts))


def _below(level: float) -> Array:
    """The share of each class that lies below a level: float64 [classes]."""
    octaves, many = level_kernels.OCTAVES, level_kernels.AN_OCTAVE
    top = 0.5 ** np.repeat(np.arange(octaves), many)
    upper = np.append(top * (1.0 - np.tile(np.arange(many), octaves) / (2.0 * many)), 0.5**octaves)
    lower = np.append(upper[1:], 0.0)
    found: Array = np.clip((level - lower) / (upper - lower), 0.0, 1.0)
    return found
