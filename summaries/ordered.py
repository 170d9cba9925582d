"""Summaries of ordered values: histogram and wavelet, and the numbers in the order of values that they take as keys."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from nile.summaries.countsketch import SEED, CountSketch
from nile.summaries.envelope import Envelope
from nile.summaries.errors import ConfigError
from nile.summaries.estimate import Estimate
from nile.summaries.exact import ExactCounter
from nile.summaries.heavy import pa
from nile.summaries.key_types import key_family, strings_of, words_of
from nile.summaries.summary import TOP, Summary, largest_change

__all__ = ["Histogram", "Wavelet", "order_codes"]

Array = np.ndarray[Any, Any]
_SIGN = np.uint64(1 << 63)
_TEXT = 8


def order_codes(column: pa.Array, *, where: str = "key") -> Array:
    """Numbers in the order of the values of a column [n]: uint64 [n], 0 for null.

    Numbers, dates and times by the bits of a float64, -0.0 as 0.0 and NaN above all: the first 12 bits are sign and
    exponent, so that the first b bits tell values apart to a part in 2**(b - 12), and whole numbers beyond 2**53 may
    share one.  Text and bytes by their first 8 bytes.  Raises KeyTypeError for types that cannot be keys.
    """
    family = key_family(column.type, where=where)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if family == "null":
        return np.zeros(len(column), np.uint64)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    if family in ("text", "bytes"):
        return np.where(valid, _first_bytes(column), np.uint64(0))
    if family.startswith("decimal"):
        numbers = column.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)
    else:
        words = words_of(column, family)
        whole = words.view(np.uint64) if family == "uint64" else words
        numbers = words.view(np.float64) if family == "float" else whole.astype(np.float64)
    bits = (np.asarray(numbers, np.float64) + 0.0).view(np.uint64)
    ordered = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    return np.where(valid, ordered, np.uint64(0)).astype(np.uint64)


def _first_bytes(column: pa.Array) -> Array:
    """The first 8 bytes of each text as a number, the first byte foremost: uint64 [n]."""
    data, offsets = strings_of(column.fill_null("" if pa.types.is_string(column.type) else b""))
    length = offsets[1:] - offsets[:-1]
    codes = np.zeros(length.shape[0], np.uint64)
    for at in range(_TEXT):
        has = length > at
        codes[has] |= data[offsets[:-1][has] + at].astype(np.uint64) << np.uint64(8 * (_TEXT - 1 - at))
    return codes


class Histogram(ExactCounter):
    """How many tuples have a value in each bin; 16 bytes a bin that is not empty.

    bits: 1 to 32.  A bin has the values whose numbers (`order_codes`) begin with the same bits: bins of equal width
    within each power of two, a sixteenth of the value with the default of 16.  Bins do not depend on the data, so
    histograms add, and tuples can be taken back.  Cost: as of the exact counter, over bins.

    Error, absolute and on the count of one value: never too low, too high by at most the other values of its bin; on
    the count of a range (`between`): at most the tuples of the two bins at its ends.  Certain, until saturated.
    Source: bins that follow the magnitude: Masson, Rim, Lee, VLDB 2019, section 2.2 (there for quantiles).
    """

    __slots__ = ("bits",)

    kind: ClassVar[str] = "histogram"
    ordered: ClassVar[bool] = True

    def __init__(self, bits: int = 16) -> None:
        super().__init__()
        self.bits = _bits("histogram", bits, 32)

    def estimate(self, hashes: Array) -> Estimate:
        """How often each value came, at most: float64 [n] for the numbers of values uint64 [n]; low is 0 or all."""
        held = np.maximum(np.asarray(super().estimate(self._bins(self._checked_hashes(hashes))).value), 0.0)
        if self._saturated:
            return Estimate(held, held, held, 0.0, False)
        return Estimate(held, np.zeros_like(held), held, 1.0, True)

    def between(self, low: int, high: int) -> Estimate:
        """How many tuples have numbers of values in [low, high]: one float; bins at the ends count by their share."""
        if low > high or not self.distinct:
            return Estimate.exact(0.0)
        width = 1 << (64 - self.bits)
        first = self.hashes.astype(np.float64) * width
        inside = (np.minimum(first + width, high + 1.0) - np.maximum(first, float(low))) / width
        share = np.clip(inside, 0.0, 1.0)
        bins = (low // width, high // width)
        mine = (self.hashes >= np.uint64(bins[0])) & (self.hashes <= np.uint64(bins[1]))
        whole = mine & (share >= 1.0)
        value, least, most = (float((self.counts * part).sum()) for part in (share * mine, whole, mine))
        return Estimate(min(max(value, least), most), least, most, 0.0 if self._saturated else 1.0, not self._saturated)

    def empty(self) -> Self:
        return type(self)(self.bits)

    def _bins(self, codes: Array) -> Array:
        bins: Array = codes >> np.uint64(64 - self.bits)
        return bins

    def _insert(self, hashes: Array, weights: Array | None) -> None:
        super()._insert(self._bins(hashes), weights)

    def _shape(self) -> Mapping[str, object]:
        return {"bits": self.bits}

    def _params(self) -> Mapping[str, Any]:
        return {"bits": self.bits}

    @classmethod
    def _restore(cls, envelope: Envelope) -> Self:
        made = super()._restore(envelope)
        made.bits = envelope.integer("bits", 1, 32)
        if made.hashes.shape[0] and int(made.hashes[-1]) >> made.bits:
            envelope.refuse(f"bins of {made.bits} bits", "others")
        return made


class Wavelet(Summary):
    """The Haar wavelet of the values' counts, one coefficient a dyadic range, sketched where ranges are many.

    bits: 1 to 32, the levels; rows, columns: of the count sketch of each level's coefficients, columns a power of two;
    seed: draws its hash functions.  A coefficient is what the left half of a dyadic range holds less what the right
    half holds: at level l there are 2**l, kept one by one while they fit into a row.  The two signs of a counter
    are kept apart, so that each bounds a half from above.  Linear.  Space: 16 * bits * rows * columns bytes; cost:
    bits * rows increments a tuple.

    Error: of a value, never above `high`, the least of its counters on the way down, which is too high by at most
    e * total / (2 * columns) with probability 1 - exp(-rows) (Cormode, Muthukrishnan, J. Algorithms 2005, theorem 1)
    and by the other values of its last range; of a range (`between`) each level errs by its coefficients' sketch,
    halved at each level below.  Source: Gilbert et al., VLDB 2001, section 4; Cormode et al., EDBT 2006, section 3.
    """

    __slots__ = ("_multipliers", "bits", "columns", "counters", "rows", "seed")

    kind: ClassVar[str] = "wavelet"
    linear: ClassVar[bool] = True
    ordered: ClassVar[bool] = True

    def __init__(self, bits: int = 16, rows: int = 3, columns: int = 64, seed: int = SEED) -> None:
        super().__init__()
        self.bits = _bits("wavelet", bits, 32)
        CountSketch.shift(columns)
        if isinstance(rows, bool) or not isinstance(rows, int) or not 1 <= rows <= 15 or columns > 1 << 16:
            raise ConfigError(f"wavelet: needed 1 to 15 rows and at most 65536 columns; got {rows!r} and {columns!r}")
        self.rows, self.columns, self.seed = rows, columns, seed
        self.counters: Array = np.zeros((bits, rows, 2 * columns), np.int64)
        self._multipliers = CountSketch.multipliers(bits * rows, seed).reshape(bits, rows)

    @property
    def nbytes(self) -> int:
        return int(self.counters.nbytes)

    def estimate(self, hashes: Array) -> Estimate:
        """How often each value came: float64 [n] for the numbers of values uint64 [n]; in [0, high], certain.

        Of streams that never take out more of a value than they put in; a saturated one claims nothing.
        """
        codes = self._checked_hashes(hashes)
        value, high = self._down(codes, np.full(codes.shape[0], self.bits))
        if self._saturated:
            return Estimate(value, np.zeros_like(value), high, 0.0, False)
        return Estimate(value, np.zeros_like(value), high, 1.0, True)

    def between(self, low: int, high: int) -> Estimate:
        """How many tuples have numbers of values in [low, high], ranges of the last level whole: one float.

        At most 2 * bits dyadic ranges are added; `high` is certain, `low` is 0.
        """
        if low > high or self._total <= 0:
            return Estimate.exact(0.0)
        by = 64 - self.bits
        ranges = _dyadic(low >> by, high >> by, self.bits)
        codes = np.array([node << (64 - level) if level else 0 for level, node in ranges], np.uint64)
        value, most = self._down(codes, np.array([level for level, _ in ranges]))
        top = min(float(most.sum()), float(self._total))
        sure = not self._saturated
        return Estimate(min(float(value.sum()), top), 0.0, top, 1.0 if sure else 0.0, sure)

    def confidence(self) -> float:
        """1 / (1 + e / (2 * columns) * levels that are sketched): 1 where every coefficient is kept."""
        sketched = max(0, self.bits - int(math.log2(self.columns)) - 1)
        return 1.0 if self._total == 0 else 1.0 / (1.0 + math.e / (2 * self.columns) * sketched)

    def empty(self) -> Self:
        return type(self)(self.bits, self.rows, self.columns, self.seed)

    def _down(self, codes: Array, levels: Array) -> tuple[Array, Array]:
        """Tuples in the dyadic range of each code after so many levels: the estimate and the bound, float64 [n]."""
        held = np.full(codes.shape[0], max(float(self.counters[0, 0, :2].astype(np.float64).sum()), 0.0))
        most = held.copy()
        for level in range(self.bits):
            going = levels > level
            cells = self._cells(codes, level)
            at = np.arange(self.rows)[:, None]
            own = self.counters[level][at, cells].astype(np.float64)
            difference = np.median(own - self.counters[level][at, cells ^ 1], axis=0)
            most = np.where(going, np.minimum(most, np.maximum(own.min(axis=0), 0.0)), most)
            held = np.where(going, np.clip((held + difference) / 2.0, 0.0, most), held)
        return np.minimum(held, most), most

    def _cells(self, codes: Array, level: int) -> Array:
        """The cell of each code's half in every row of a level: int64 [rows, n].

        The coefficient's column and sign are drawn by its range; the half with the sign is 2 * column, the other one
        beside it.
        """
        half = (codes >> np.uint64(63 - level)) & np.uint64(1)
        node = codes >> np.uint64(64 - level) if level else np.zeros_like(codes)
        if 1 << level <= self.columns:
            plain = (node << np.uint64(1)) | half
            return np.broadcast_to(plain.astype(np.int64), (self.rows, codes.shape[0]))
        drawn = (node[None, :] * self._multipliers[level][:, None]) >> np.uint64(CountSketch.shift(self.columns))
        cells: Array = (drawn ^ half[None, :]).astype(np.int64)
        return cells

    def _insert(self, hashes: Array, weights: Array | None) -> None:
        n = hashes.shape[0]
        if weights is not None and n > 1 and largest_change(n, weights) > TOP:
            self._insert(hashes[: n // 2], weights[: n // 2])
            self._insert(hashes[n // 2 :], weights[n // 2 :])
            return
        piece = np.zeros_like(self.counters)
        for level in range(self.bits):
            cells = self._cells(hashes, level)
            for row in range(self.rows):
                if weights is None:
                    piece[level, row] = np.bincount(cells[row], minlength=2 * self.columns)
                else:
                    np.add.at(piece[level, row], cells[row], weights)
        self._added(piece, 1)

    def _combine(self, other: Wavelet, sign: int) -> None:
        self._added(other.counters, sign)

    def _added(self, counters: Array, sign: int) -> None:
        """Add counters, or take them out, stopping at the ends of int64."""
        mine = self.counters
        changed = mine + counters if sign > 0 else mine - counters
        other = counters if sign > 0 else ~counters  # as negation, with the sign that a wrap is told by
        wrapped = ((mine ^ changed) & (other ^ changed)) < 0
        if wrapped.any():
            changed[wrapped] = np.where(mine[wrapped] < 0, -TOP, TOP)
        low = changed < -TOP
        changed[low] = -TOP
        self._saturated |= bool(wrapped.any() or low.any())
        self.counters = changed

    def _shape(self) -> Mapping[str, object]:
        return {"bits": self.bits, "rows": self.rows, "columns": self.columns, "seed": self.seed}

    def _params(self) -> Mapping[str, Any]:
        return {"bits": self.bits, "rows": self.rows, "columns": self.columns, "seed": self.seed}

    def _arrays(self) -> Mapping[str, Array]:
        return {"counters": self.counters}

    @classmethod
    def _restore(cls, envelope: Envelope) -> Self:
        bits, rows = envelope.integer("bits", 1, 32), envelope.integer("rows", 1, 15)
        columns = envelope.integer("columns", 1, 1 << 16)
        if columns & (columns - 1):
            envelope.refuse("parameter 'columns' must be a power of two", str(columns))
        counters = envelope.array("counters", "<i8", (bits, rows, 2 * columns))
        made = cls(bits, rows, columns, envelope.integer("seed", 0, (1 << 64) - 1))
        made.counters = counters.astype(np.int64)
        return made


def _bits(kind: str, bits: object, most: int) -> int:
    if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= most:
        raise ConfigError(
            f"{kind}: bits needs 1 to {most}; got {bits!r}; 16 is usual: 12 are sign and exponent, the others tell "
            "values of one power of two apart"
        )
    return bits


def _dyadic(first: int, last: int, bits: int) -> list[tuple[int, int]]:
    """The fewest dyadic ranges (level, number at that level) that make up [first, last] of 2**bits."""
    found, level = [], bits
    while first <= last:
        if level == 0:
            found.append((0, 0))
            break
        if first & 1:
            found.append((level, first))
            first += 1
        if not last & 1:
            found.append((level, last))
            last -= 1
        if first > last:
            break
        first, last, level = first >> 1, last >> 1, level - 1
    return found
