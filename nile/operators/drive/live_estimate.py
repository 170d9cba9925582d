"""How many pairs the exact answer of a weighted live join has so far: `common.key_sample`, running.

Kept of each key and level: the sum of its outputs' weights and the variance of drawing among them; levels telescope.
Of tuples with coins of their own besides: `nile.operators.drive.live_coins`.
Memory.  Up to `_MOST` of these, about 3 MB; beyond, neighbours in hash are taken for one key and levels are rounded
down, which only widens the interval.  Sums are added up in the order of outputs, and thinned only after whole blocks
of outputs, so that the state does not depend on how the input was cut.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nile.exact.state.held import MOST, Held, State
from nile.operators.drive.live_coins import TupleCoins
from nile.operators.join.rates_met import RatesMet
from nile.preferences.key_sample import counted, left_out, missing_of
from nile.summaries.estimate import Estimate

__all__ = ["LiveSample"]

Array = np.ndarray[Any, Any]
_BLOCK = 1 << 16
_MOST = 1 << 16
_FEW = 1 << 13
_CONFIDENCE = 0.95
_ENOUGH = 11.7  # parts: of 39 in 40 samples of so many, as of Poisson counts, six or more come in, which claim
_LARGEST = 1e60
"""No sum of weights comes near it, and its square is a number."""


class LiveSample:
    """The sample that the outputs of a weighted join of so many streams are.

    window: ns; met: whether it is told what each arrival completes, so that it knows the rates that all met.
    """

    def __init__(self, window: int | None, streams: int = 2, *, met: bool = False) -> None:
        self._window = window
        self._hash = np.zeros(0, np.uint64)
        self._level = np.zeros(0)
        self._sums = np.zeros((0, 2))  # of weights, and of variances of drawing among outputs
        self._fresh: list[tuple[Array, Array, Array]] = []
        self._pending = 0
        self._outputs = 0
        self._total = 0.0
        self._found = 0
        self._keyed = np.zeros(streams, np.int64)
        self._stood_for = np.zeros(streams)
        self._coins = [TupleCoins() for _ in range(streams)]
        self._drops = False
        self._begin: int | None = None
        self.met = RatesMet(streams) if met else None

    def arrive(self, side: int, tuples: int, keyed: int, first: int) -> None:
        """Tuples of a stream came, `keyed` of them with a key, the first at `first` ns."""
        if tuples:
            self._keyed[side] += keyed
            self._begin = first if self._begin is None else min(self._begin, first)

    def complete(self, side: int, matches: Array) -> None:
        """Tuples of a stream came that complete so many outputs each, whoever came in: [n]."""
        if self.met is not None:
            self.met.arrive(side, matches.astype(np.float64))

    def let_in(self, side: int, admissions: Array, key: Array, share: Array, salt: int) -> None:
        """Tuples were dealt with in this order.  admissions: float64 [n], the level each came in at, 0 for none.

        key, share, salt: as `RatesMet.deal_with` takes them.
        """
        if self.met is not None:
            self.met.deal_with(side, share, key, salt)
        inside = admissions[admissions > 0.0]
        if inside.shape[0]:
            self._drops = self._drops or bool((inside < 1.0).any())
            self._stood_for[side] = _added(self._stood_for[side], 1.0 / inside)

    def add(
        self, key: Array, level: Array, weight: Array, pairs: Array, coins: Sequence[tuple[Array, Array]] = ()
    ) -> None:
        """Outputs in the order found.  key: uint64 [n], hashes; level: float64 [n]; pairs: int64 [n], behind each.

        coins: of each stream, where its tuples have coins, the tuple behind each output (int64 [n]) and that tuple's
        level times the probability that its coin left it out (float64 [n]).
        """
        left = level - 1.0 / weight  # what keys and tuples leave of each output's own, by its weight's square
        for held, (tuples, share) in zip(self._coins, coins, strict=False):
            held.add(tuples, share, weight * pairs)
            left = left - share
        inner = left * weight**2 if coins else np.maximum(weight * (weight - 1.0 / level), 0.0)
        begin = 0
        while begin < key.shape[0]:
            end = min(key.shape[0], begin + _BLOCK - self._outputs % _BLOCK)
            part = slice(begin, end)
            amount = weight[part] * pairs[part]
            drawn = inner[part] * pairs[part] ** 2.0
            self._fresh.append((key[part], level[part], np.stack([amount, drawn], axis=1)))
            self._pending += end - begin
            self._outputs += end - begin
            self._total = _added(self._total, amount)
            self._found += int(pairs[part].sum())
            begin = end
            if self._pending >= max(_FEW, self._hash.shape[0]):
                self._fold()
            if self._outputs % _BLOCK == 0:
                self._fold()
                self._thin()

    def _fold(self) -> None:
        """Add up what is new by key and level: each sum goes on in the order of outputs."""
        if not self._fresh:
            return
        key = np.concatenate([self._hash, *(each[0] for each in self._fresh)])
        level = np.concatenate([self._level, *(each[1] for each in self._fresh)])
        sums = np.concatenate([self._sums, *(each[2] for each in self._fresh)])
        self._fresh, self._pending = [], 0
        self._hash, self._level, self._sums = _grouped(key, level, sums)

    def _thin(self) -> None:
        if self._hash.shape[0] <= _MOST:
            return
        level = np.exp2(np.floor(4.0 * np.log2(self._level)) / 4.0)
        bits = 0
        while bits < 64:
            key = (self._hash >> np.uint64(bits)) << np.uint64(bits)
            rows = _grouped(key, level, self._sums)
            if rows[0].shape[0] <= _MOST // 2:
                break
            bits += 1
        self._hash, self._level, self._sums = rows

    def estimate(self, last: int | None, foreseen: tuple[float, float] | None = None) -> Estimate:
        """The count of pairs, with a 95 % interval (not certified).  last: ts of the newest tuple.

        foreseen: the matches of all tuples, and the variance of totals of samples at the same rates, whatever came in.
        They vary as a count of equal parts, each variance over matches large: this one as that of those that it found.
        Of few in all, those samples would claim an interval that happened to miss what is heavy: none does.
        """
        self._fold()
        new = np.ones(self._hash.shape[0], bool)
        new[1:] = self._hash[1:] != self._hash[:-1]
        cell = np.cumsum(new) - 1
        reached = np.cumsum(self._sums[:, 0])
        reached -= (reached - self._sums[:, 0])[new][cell]
        before = reached - self._sums[:, 0]
        whole = np.maximum(np.bincount(cell, (1.0 - self._level) * (reached**2 - before**2)), 0.0)
        coins = [each.spread() for each in self._coins]
        variance = max(0.0, float(whole.sum() + self._sums[:, 1].sum()) + sum(part for part, _ in coins))
        largest = math.sqrt(max(whole.max(initial=0.0), *(most for _, most in coins)))
        found, total = float(self._found), self._total
        foreseen = foreseen if self.met is None else self.met.foreseen
        if foreseen is not None:
            matches, spread = foreseen
            if not matches or matches * matches < _ENOUGH * spread:
                return Estimate(total, min(total, found), math.inf, _CONFIDENCE, False)
            variance = max(variance, total * spread / matches)
        return counted(found, total, variance, self._left_out(last), _CONFIDENCE, largest)

    def let_go(self, first: Sequence[int]) -> None:
        """Of each stream, the first tuple that outputs may still come of."""
        for coins, keep in zip(self._coins, first, strict=True):
            coins.let_go(keep)

    def _left_out(self, last: int | None) -> float:
        """About how many outputs keys that were left out may have."""
        if not self._drops or self._begin is None or last is None:
            return 0.0
        streams = list(zip(self._keyed.tolist(), self._stood_for.tolist(), strict=True))
        return left_out(*missing_of(streams, self._window, last - self._begin), self._total)

    def capture(self) -> State:
        """What has been seen, for `nile.execution.envelopes.flat`."""
        self._fold()
        return {
            "hash": self._hash, "level": self._level, "sums": self._sums, "outputs": self._outputs,
            "found": self._found, "keyed": self._keyed.copy(), "begin": self._begin, "drops": self._drops,
            "numbers": np.array([self._total, *self._stood_for]),
            "coins": [coins.capture() for coins in self._coins],
        } | ({} if self.met is None else {"met": self.met.capture()})  # fmt: skip

    def restore(self, held: Held) -> None:
        """Be where another one was.  Raises EnvelopeError."""
        self._hash = held.array("hash", "uint64", (None,))
        n = self._hash.shape[0]
        self._level, self._sums = held.array("level", "float64", (n,)), held.array("sums", "float64", (n, 2))
        numbers = held.array("numbers", "float64", (1 + self._stood_for.shape[0],))
        fits = all(bool(((each >= 0.0) & (each <= _LARGEST)).all()) for each in (self._sums[:, 0], numbers))
        fits = fits and bool((np.abs(self._sums[:, 1]) <= _LARGEST).all())
        if not (fits and ((self._level > 0.0) & (self._level <= 1.0)).all()):
            held.refuse("sums and levels of a sample", "others")
        if (self._hash[1:] < self._hash[:-1]).any():
            held.refuse("keys in the order of their hashes", "another")
        self._outputs, self._found = held.integer("outputs", 0, MOST), held.integer("found", 0, MOST)
        self._keyed = held.counts("keyed", self._keyed.shape[0]).copy()
        self._begin, self._drops = held.integer_or_none("begin"), held.flag("drops")
        self._total, self._stood_for = float(numbers[0]), numbers[1:].copy()
        if held.has("coins"):  # an older one took its tuples' coins for its keys'
            for coins, part in zip(self._coins, held.parts("coins", len(self._coins)), strict=True):
                coins.restore(part, _LARGEST)
        if self.met is not None and held.has("met"):
            self.met.restore(held.part("met"))
        else:
            self.met = None  # an older one does not know what its tuples met
        held.end()

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        met = 0 if self.met is None else self.met.nbytes
        return self._hash.nbytes * 4 + 40 * self._pending + sum(coins.nbytes for coins in self._coins) + met


def _added(total: float, amounts: Array) -> float:
    """A sum that goes on one by one, whatever the batches."""
    return float(np.add.accumulate(np.append(total, amounts))[-1])


def _grouped(key: Array, level: Array, sums: Array) -> tuple[Array, Array, Array]:
    """Sums by key and level, both ascending, each added up in order."""
    order = np.lexsort((level, key))
    new = np.ones(order.shape[0], bool)
    k, v = key[order], level[order]
    new[1:] = (k[1:] != k[:-1]) | (v[1:] != v[:-1])
    cell = np.cumsum(new) - 1
    made = [np.bincount(cell, sums[order, column], int(new.sum())) for column in (0, 1)]
    return k[new], v[new], np.stack(made, axis=1)
