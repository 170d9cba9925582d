"""The count sketch: the summary of every cell of the grid.

Source: Charikar, Chen, Farach-Colton, ICALP 2002, section 3; promising tuples, section 3.2.  We differ in
keeping the two signs of a counter apart (summaries/sketch_kernels.py says how), which costs twice the space
and gives, from the same increments, a certain upper bound beside the unbiased estimate.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from nile.summaries.envelope import Envelope
from nile.summaries.errors import ConfigError
from nile.summaries.estimate import Estimate
from nile.summaries.lazy import lazy
from nile.summaries.summary import TOP, Summary, largest_change

if TYPE_CHECKING:
    from nile.summaries import sketch_kernels
else:
    sketch_kernels = lazy("nile.summaries.sketch_kernels")

__all__ = ["CONFIDENCE", "CountMin", "CountSketch", "splitmix"]

Array = np.ndarray[Any, Any]

SEED = 0x5EEDC0DE
CONFIDENCE = 0.95
"""The confidence of the interval that `estimate` gives."""
MAX_ROWS = 64
MAX_COLUMNS = 1 << 24
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


class CountSketch(Summary):
    """An unbiased estimate of how often each key came, in space that does not grow with the stream.

    rows: independent repetitions, 1 to 64; columns: counters per row, a power of two up to 2**24; seed: draws
    the rows' hash functions.  Space: 16 * rows * columns bytes (80 KiB for 5 x 1,024).  Cost: `rows`
    multiplications and increments a tuple; add and subtract one pass over the counters.

    Error, absolute and on the count of one key f: a row's estimate has mean f and variance at most
    F2 / columns, where F2 is the sum of the squared counts of all keys, so with 1,024 columns its standard
    error is sqrt(F2) / 32.  A key holding most of the stream is known almost exactly, a rare one is lost in
    the standard error.  The proof takes hashes as uniform and independent, which the key hashes approach.

    Counts are of multisets: estimates and bounds assume that no key was taken out more often than put in.
    Counters stop at the ends of int64 and `saturated` tells.  Raises ConfigError for a bad shape.
    """

    __slots__ = ("_moments", "_reach", "_shared", "counters", "row_multipliers")

    kind: ClassVar[str] = "countsketch"
    linear: ClassVar[bool] = True

    def __init__(self, rows: int = 5, columns: int = 1024, seed: int = SEED) -> None:
        super().__init__()
        if not isinstance(rows, int) or not 1 <= rows <= MAX_ROWS:
            raise ConfigError(f"countsketch: rows needs 1 to {MAX_ROWS}; got {rows!r}; an odd number near 5 is usual")
        self.row_multipliers: Array = self.multipliers(rows, seed)
        self.counters: Array = np.zeros((rows, 1 << (64 - self.shift(columns))), np.int64)
        self._shared = False
        self._reach = 0
        self._moments: Array | None = None

    @staticmethod
    def multipliers(rows: int, seed: int) -> Array:
        """The odd multipliers of a sketch's rows: uint64 [rows], splitmix64 of the seed, the same everywhere."""
        return np.array([splitmix(seed + (r + 1) * _GOLDEN) | 1 for r in range(rows)], np.uint64)

    @staticmethod
    def shift(columns: int) -> int:
        """How far multiplier * hash is shifted to give a cell of 2 * columns cells.

        Raises ConfigError unless columns is a power of two from 1 to 2**24.
        """
        if not isinstance(columns, int) or not 1 <= columns <= MAX_COLUMNS or columns & (columns - 1):
            raise ConfigError(
                f"countsketch: columns needs a power of two from 1 to {MAX_COLUMNS}; got {columns!r}; 1024 is usual"
            )
        return 64 - columns.bit_length()

    @classmethod
    def view(cls, counters: Array, multipliers: Array, total: int) -> Self:
        """A sketch upon counters that live elsewhere, such as one cell of a grid: no copy, shared memory.

        counters: int64 [rows, 2 * columns], C-contiguous; multipliers: uint64 [rows]; total: the weight that
        `counters` hold already.  Writing through the view writes the grid; a view's total does not follow
        what others write.  Raises ConfigError for arrays of another form.
        """
        cells = counters.shape[1] if counters.ndim == 2 else 0
        if (
            cells < 2
            or counters.dtype != np.int64
            or not counters.flags.c_contiguous
            or multipliers.dtype != np.uint64
            or multipliers.shape != counters.shape[:1]
        ):
            raise ConfigError(
                "countsketch view: needed C-contiguous int64 [rows, 2 * columns] and uint64 [rows]; got "
                f"{counters.dtype} {list(counters.shape)} and {multipliers.dtype} {list(multipliers.shape)}; "
                "slice whole sketches off the grid"
            )
        cls.shift(cells // 2 if cells % 2 == 0 else cells)
        return cls._upon(counters, multipliers, total, shared=True)

    @classmethod
    def _upon(cls, counters: Array, multipliers: Array, total: int, *, shared: bool) -> Self:
        sketch = cls.__new__(cls)
        Summary.__init__(sketch)
        sketch.counters = counters
        sketch.row_multipliers = multipliers
        sketch._total = total
        sketch._shared = shared
        sketch._reach = TOP  # not known; looked at when it first matters
        sketch._moments = None
        return sketch

    @property
    def rows(self) -> int:
        """Independent repetitions."""
        return int(self.counters.shape[0])

    @property
    def columns(self) -> int:
        """Counters a row; each is two cells, one a sign."""
        return int(self.counters.shape[1]) // 2

    @property
    def nbytes(self) -> int:
        return int(self.counters.nbytes + self.row_multipliers.nbytes)

    def estimate(self, hashes: Array) -> Estimate:
        """How often each key came, in tuples: the median over rows, cut to [0, upper bound].

        hashes: uint64 [n]; fields float64 [n] (counts past 2**53 are rounded).  Confidence 0.95 for each key
        alone: by Chebyshev a row is off by t * sqrt(F2 / columns) or more with probability 1 / t**2 at most,
        the median only if half the rows are, and t makes that binomial tail 0.05.  Not certified: F2 is not
        known and its estimate, the median over rows of the sum of squared counters, takes its place.
        `high` is never above `upper`, which is certain.  A saturated sketch claims nothing (confidence 0).
        Cost: `rows` reads a key, and one pass over the counters for F2 after every change.
        """
        raw, upper = self._ask(hashes)
        ceiling = np.maximum(upper, 0).astype(np.float64)
        width = _chebyshev_factor(self.rows, CONFIDENCE) * self.standard_error()
        low, value, high = (np.clip(x, 0.0, ceiling) for x in (raw - width, raw, raw + width))
        return Estimate(value, low, high, 0.0 if self._saturated else CONFIDENCE, False)

    def upper(self, hashes: Array) -> Array:
        """At least how often each key came: int64 [n], for uint64 [n].

        Certain for streams that never delete (count-min, each row with 2 * columns cells), unless saturated.
        """
        return self._ask(hashes)[1]

    def second_moment(self) -> float:
        """F2, the sum of the squared counts of all keys, estimated: median of the rows' sums of squares.

        A row's sum is unbiased with variance at most 2 * F2**2 / columns (Alon, Matias, Szegedy, STOC 1996,
        section 2.2).
        """
        moments = self._moments
        if moments is None or self._shared:
            moments = np.empty(self.rows, np.float64)
            sketch_kernels.second_moments(self.counters, moments)
            self._moments = moments
        return float(np.median(moments))

    def standard_error(self) -> float:
        """The standard deviation of one row's estimate, in tuples: sqrt(F2 / columns), F2 estimated."""
        return math.sqrt(self.second_moment() / self.columns)

    def confidence(self) -> float:
        """1 / (1 + cv): cv is the coefficient of variation of the counters, in (0, 1]; 1 when empty.

        cv = sqrt(F2 / columns) / (|total| / columns): the standard deviation of a counter over the mean load
        of a column.  Near 1 for many keys spread evenly, 1 / (1 + sqrt(columns)) for a single key, and blind
        to which keys they are.  No probability.  Source: promising tuples, section 3.2, which takes "the
        variance of the items in the countsketch" and gives no formula; dividing by the load is ours, since
        the bare variance would fall with every tuple of a steady stream.
        """
        error = self.standard_error()
        if error == 0.0:
            return 1.0
        load = max(abs(self._total), 1) / self.columns
        return 1.0 / (1.0 + error / load)

    def empty(self) -> Self:
        sketch = self._upon(np.zeros_like(self.counters), self.row_multipliers, 0, shared=False)
        sketch._reach = 0
        return sketch

    def _ask(self, hashes: Array) -> tuple[Array, Array]:
        keys = self._checked_hashes(hashes)
        raw = np.empty(keys.shape[0], np.float64)
        upper = np.empty(keys.shape[0], np.int64)
        sketch_kernels.estimate(self.counters, self.row_multipliers, self.shift(self.columns), keys, raw, upper)
        return raw, upper

    def _insert(self, hashes: Array, weights: Array | None) -> None:
        n = hashes.shape[0]
        change = largest_change(n, weights)
        if change > TOP and n > 1 and weights is not None:
            self._insert(hashes[: n // 2], weights[: n // 2])
            self._insert(hashes[n // 2 :], weights[n // 2 :])
        elif self._has_room(change):
            self._update(self.counters, hashes, weights)
        else:
            piece = np.zeros_like(self.counters)
            self._update(piece, hashes, weights)
            self._saturated |= bool(sketch_kernels.saturating_combine(self.counters, piece, 1))

    def _update(self, counters: Array, hashes: Array, weights: Array | None) -> None:
        self._moments = None
        by = self.shift(self.columns)
        if weights is None:
            sketch_kernels.update_rows(counters, self.row_multipliers, by, hashes)
        else:
            sketch_kernels.update_rows_weighted(counters, self.row_multipliers, by, hashes, weights)

    def _combine(self, other: CountSketch, sign: int) -> None:
        self._moments = None
        if other._shared or other._reach >= TOP:
            other._reach = other._largest()
        if self._has_room(other._reach):
            if sign > 0:
                np.add(self.counters, other.counters, out=self.counters)
            else:
                np.subtract(self.counters, other.counters, out=self.counters)
        else:
            self._saturated |= bool(sketch_kernels.saturating_combine(self.counters, other.counters, sign))

    def _has_room(self, change: int) -> bool:
        """Whether no counter can pass the end of int64 when each moves by at most `change`.

        `_reach` bounds every counter; it grows by each change, in O(1), and only when it would pass the end
        are the counters themselves looked at.
        """
        if self._shared or self._reach + change > TOP:
            self._reach = self._largest()
        fits = self._reach + change <= TOP
        self._reach = self._reach + change if fits else TOP
        return fits

    def _largest(self) -> int:
        return max(int(self.counters.max()), -int(self.counters.min()))

    def _shape(self) -> Mapping[str, object]:
        digest = hashlib.blake2b(self.row_multipliers.astype("<u8").tobytes(), digest_size=4).hexdigest()
        return {"rows": self.rows, "columns": self.columns, "hashing": digest}

    def _params(self) -> Mapping[str, Any]:
        return {"rows": self.rows, "columns": self.columns}

    def _arrays(self) -> Mapping[str, Array]:
        return {"counters": self.counters, "multipliers": self.row_multipliers}

    @classmethod
    def _restore(cls, envelope: Envelope) -> Self:
        rows = envelope.integer("rows", 1, MAX_ROWS)
        columns = envelope.integer("columns", 1, MAX_COLUMNS)
        if columns & (columns - 1):
            envelope.refuse("parameter 'columns' must be a power of two", str(columns))
        counters = envelope.array("counters", "<i8", (rows, 2 * columns))
        multipliers = envelope.array("multipliers", "<u8", (rows,))
        if not (multipliers & np.uint64(1)).all():
            envelope.refuse("multipliers must be odd", "an even one")
        return cls._upon(counters.astype(np.int64), multipliers.astype(np.uint64), total=0, shared=False)


class CountMin(CountSketch):
    """At least how often each key came, and hardly ever much more: the least of its counters.

    rows, columns, seed: as of `CountSketch`; a row has 2 * columns cells, each a plain counter.  Space and cost
    likewise.

    Error, absolute and on the count of one key: never too low, and too high by at most e * total / (2 * columns) with
    probability 1 - exp(-rows), hashes taken as uniform (Cormode, Muthukrishnan, J. Algorithms 2005, theorem 1).  Better
    than the count sketch where no key is frequent and what must not be missed is asked; worse by far on skewed streams.
    """

    __slots__ = ()

    kind: ClassVar[str] = "countmin"

    def estimate(self, hashes: Array) -> Estimate:
        """How often each key came, in tuples: float64 [n], its own upper bound.  Confidence 1 - exp(-rows), certified.

        Of streams that never take out more of a key than they put in.  A saturated one claims nothing.
        """
        value = np.maximum(self.upper(hashes), 0).astype(np.float64)
        low = np.maximum(value - math.e * max(self._total, 0) / (2 * self.columns), 0.0)
        if self._saturated:
            return Estimate(value, low, value, 0.0, False)
        return Estimate(value, low, value, 1.0 - math.exp(-self.rows), True)


def splitmix(value: int) -> int:
    """The next number of splitmix64 after a state: 64 bits in, 64 bits out (Steele, Lea, Flood, OOPSLA 2014)."""
    z = value & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def median_failure(rows: int, one_row: float) -> float:
    """The probability that a median over rows is off when each row is, independently, with this one.

    The binomial tail: at least half of `rows` (rounded up) are off.
    """
    least = (rows + 1) // 2
    return sum(math.comb(rows, k) * one_row**k * (1.0 - one_row) ** (rows - k) for k in range(least, rows + 1))


@cache
def _chebyshev_factor(rows: int, confidence: float) -> float:
    """How many standard errors of a row the median stays within: the t of `CountSketch.estimate`."""
    low, high = 0.0, 1.0
    for _ in range(60):  # halvings: as near as float64 can tell
        middle = (low + high) / 2.0
        if median_failure(rows, middle) > 1.0 - confidence:
            high = middle
        else:
            low = middle
    return 1.0 / math.sqrt(low)
