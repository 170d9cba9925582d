"""What sketches of all its tuples say of a join's total, beside what a sample of them says.

Each stream has a count sketch of its window.  A tuple that arrives asks those of the others before it goes into its
own: the least of its counters is no less than the matches there are (Cormode, Muthukrishnan, J. Algorithms 55 (2005):
count-min), the signed one is right on average (Alon, Gibbons, Matias, Szegedy, JCSS 64 (2002): inner products).
Cost.  One pass over times and keys, `ROWS` counters in, out and asked of each tuple; no budget pays for it.
Memory.  16 bytes a counter, ROWS rows of COLUMNS to 2**14 a stream, as many as its window holds tuples on average,
besides the merged order of the tuples.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.summaries.countsketch import CountSketch
from nile.summaries.estimate import Estimate
from nile.summaries.hashing import key_words, mixed
from nile.summaries.heavy import pa
from nile.summaries.intervals import student_quantile
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.common import bound_kernels
else:
    bound_kernels = lazy("nile.operators.common.bound_kernels")

__all__ = ["COLUMNS", "ROWS", "TotalBounds", "total_bounds"]

Array = np.ndarray[Any, Any]
ROWS, COLUMNS = 4, 1024
_MOST_COLUMNS = 1 << 14  # counters that still lie in the second cache
_CONFIDENCE = 0.95
_FOREVER = 1 << 62
_WHOLE = 2.0**53


@dataclass(frozen=True, slots=True)
class TotalBounds:
    """How many outputs the exact answer of a join has, by sketches of its windows.

    most: a certain bound, conditions over several streams or not; about: unbiased over the seed, with a 95 %
    interval from the spread of the sketch's rows (not certified; its ends are no counts and may lie below 0), None
    under such a condition, which no sketch of keys knows.  seconds: of the CPU, which no budget has paid; bytes: of
    the sketches.
    """

    most: float
    about: Estimate | None
    seconds: float
    bytes: int

    @property
    def words(self) -> str:
        """Both numbers in a few words."""
        most = f"at most {self.most:,.6g}"
        return most if self.about is None else f"about {float(self.about.value):,.6g}, {most}"


def total_bounds(
    ts: Sequence[Array], keys: Sequence[pa.ChunkedArray], window: int | None, *, tested: bool = False, seed: int = 0
) -> TotalBounds:
    """Of streams in order of time.  ts: int64 [n_k] ns each; keys: their keys; window: ns, None: all of the streams.

    tested: whether a condition turns combinations down.  O(tuples).  Raises KeyTypeError.
    """
    began = time.thread_time()
    sizes = [each.shape[0] for each in ts]
    merged = np.concatenate(ts)
    place = np.argsort(merged, kind="stable")
    owner = np.repeat(np.arange(len(sizes), dtype=np.int8), sizes)
    words = np.empty(merged.shape[0], np.uint64)
    first = 0
    for size, column in zip(sizes, keys, strict=True):
        own, valid = key_words(column)
        words[first : first + size] = mixed(own.view(np.uint64))
        if pa.types.is_null(column.type):
            owner[first : first + size] = -1
        elif valid.shape[0]:
            owner[first : first + size][~valid] = -1
        first += size
    multipliers = np.stack([CountSketch.multipliers(ROWS, seed + k) for k in range(len(sizes))])
    columns = COLUMNS
    while columns < min(_MOST_COLUMNS, _held(merged, max(sizes), window)):
        columns *= 2
    counters = np.zeros((len(sizes), ROWS, 2 * columns), np.int64)
    signed = np.zeros(ROWS)
    most = bound_kernels.slide(
        merged[place], owner[place], words[place], _FOREVER if window is None else window, multipliers,
        CountSketch.shift(columns), counters, signed, np.zeros(ROWS),
    )  # fmt: skip
    if most >= _WHOLE:  # rounded as often as there are tuples
        most *= 1.0 + (merged.shape[0] + len(sizes)) * 2.0**-52
    about = None
    if not tested:
        value = float(signed.mean())
        reach = student_quantile(_CONFIDENCE, ROWS - 1) * float(signed.std(ddof=1)) / ROWS**0.5
        about = Estimate(value, value - reach, value + reach, _CONFIDENCE, False)
    return TotalBounds(float(most), about, time.thread_time() - began, counters.nbytes)


def _held(times: Array, tuples: int, window: int | None) -> float:
    """How many tuples of a stream a window holds, were they to come evenly."""
    span = float(times.max()) - float(times.min()) if times.shape[0] else 0.0
    return float(tuples) if window is None or span <= window else tuples * window / span
