"""How the parts of a `weighted` join share one budget: by which keys are in the sample.

A sample of keys takes in those whose number, which the hash tells, lies below a level
(`nile.preferences.follow_kernels`): as many as the level says, more or less by chance.  One process spends what some
keys do not ask for on others; parts that had the same share of a budget each would leave it, or thin the tuples of too
many keys.  So each task that deals tuples out counts them by the numbers of their keys, and a part is granted as much
of what all are granted as it has of the tuples below the level.  The level itself follows what would be granted without
that: so no coin has a say in it, and the mean of the weights stays right.
Before the first tuple the same counts tell how many matches are to be expected, which one process has to guess.
Source: Cochran, Sampling Techniques, 1977, chapter 9 (clusters); AMS, STOC 1996 (the size of a join, from counts).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.spark.standing.dealing import parts_of
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.spark.standing import level_kernels
else:
    level_kernels = lazy("nile.spark.standing.level_kernels")

__all__ = ["Levels", "matches_of", "share_of"]

Array = np.ndarray[Any, Any]
SLOTS = 1 << 10
"""Classes of hashes that pairs are counted by."""
_EVEN = 0.02
"""Share of the budget that is dealt out evenly: a part without a key below the level needs a little if that rises."""
_FIELDS = ("own", "every", "slots")


@dataclass(frozen=True, slots=True)
class Levels:
    """What a task counted of a stream, as one part is told.

    own, every: float64 [classes], the tuples of the part and of all parts by the class of their key's number; slots:
    float64 [SLOTS], all tuples by their key's hash; first, last: their times, ns.
    """

    own: Array
    every: Array
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
        slots = np.bincount((hashes >> np.uint64(54)).astype(np.int64), minlength=SLOTS).astype(float)
        return [cls(own, table.sum(axis=0), slots, int(ts.min()), int(ts.max())) for own in table]

    def batch(self) -> pa.RecordBatch:
        """For `from_batch`."""
        lists = [pa.array([getattr(self, name)], pa.list_(pa.float64())) for name in _FIELDS]
        ends = [pa.array([self.first]), pa.array([self.last])]
        return pa.RecordBatch.from_arrays([*lists, *ends], names=[*_FIELDS, "first", "last"])

    @classmethod
    def from_batch(cls, batch: pa.RecordBatch) -> Levels:
        """What `batch` gave."""
        lists = [batch.column(at)[0].values.to_numpy(zero_copy_only=False) for at in range(3)]
        first, last = (batch.column(at)[0].as_py() for at in (3, 4))
        return cls(lists[0], lists[1], lists[2], first, last)


def share_of(counts: Sequence[tuple[int, Levels]], level: float) -> float:
    """What a part's grant is multiplied by, by what all tasks counted of a micro-batch: (stream, counts) of each.

    Law: over all parts of one level, each as often as it has tuples, the mean is 1.
    """
    own, every = (np.sum([getattr(each, name) for _, each in counts], axis=0) for name in ("own", "every"))
    below = _below(level)
    met = float(every @ below) * float(own.sum())
    share = float(own @ below) * float(every.sum()) / met if met else 1.0
    return _EVEN + (1.0 - _EVEN) * share


def matches_of(counts: Sequence[tuple[int, Levels]], window: int) -> float:
    """How many matches a tuple of two streams has when it comes, on average, once a window has passed.

    Pairs of equal slots, less those that slots share by chance: without bias.
    """
    slots = np.zeros((2, SLOTS))
    for stream, each in counts:
        slots[stream] += each.slots
    tuples = slots.sum(axis=1)
    pairs = max(0.0, (float(slots[0] @ slots[1]) - tuples[0] * tuples[1] / SLOTS) / (1.0 - 1.0 / SLOTS))
    span = max(each.last for _, each in counts) - min(each.first for _, each in counts)
    found: float = pairs * min(1.0, 2.0 * window / max(1, span)) / max(1.0, float(tuples.sum()))
    return found


def _below(level: float) -> Array:
    """The share of each class that lies below a level: float64 [classes]."""
    octaves, many = level_kernels.OCTAVES, level_kernels.AN_OCTAVE
    top = 0.5 ** np.repeat(np.arange(octaves), many)
    upper = np.append(top * (1.0 - np.tile(np.arange(many), octaves) / (2.0 * many)), 0.5**octaves)
    lower = np.append(upper[1:], 0.0)
    found: Array = np.clip((level - lower) / (upper - lower), 0.0, 1.0)
    return found
