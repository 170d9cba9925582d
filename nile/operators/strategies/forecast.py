"""The contestants for a join within a grant of CPU time: what each is expected to cost, to find, and to be worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nile.operators.inputs.joining import Loaded
from nile.operators.strategies.admitted import Admission
from nile.operators.strategies.looking import Look
from nile.operators.strategies.prices import Prices
from nile.preferences.strata import Strata, best_strata, sizes_of
from nile.summaries.key_types import is_hashed

__all__ = [
    "SPARE",
    "Forecast",
    "Work",
    "best_keys",
    "choose",
    "first_part",
    "forecasts",
    "reading",
    "sampled_keys",
]

Array = np.ndarray[Any, Any]
_LISTED = 255
_SURE = 4
"""Times that a key must have been met for its slot to be a stratum of its own."""
_SHORT, _LONG = 1 << 12, 1 << 19
"""Tuples in the window up to which, and tuples from which on, the exact join goes by chains (`nile.exact.join.listed`).
"""
_LEAST = 0.01
"""Of the pairs that there are, and one pair at the most, that a part of the answer has to be expected to have."""
_MANY = 0.8
"""Of the tuples with partners, from which on none is sifted out (`nile.exact.join.shared`)."""
_ROUNDS = 6
"""In which a price and what it pays for, on which it depends, are found."""
_ALIKE = 1.15
"""Times by which what two ways find for each ns may differ in forecasts and be the same in truth."""
_ALL = 0.995
"""Of what there is, from which on a part is taken for the whole at less cost."""
_FINER = (1.0, 0.45), (2.0, 0.25)
"""By how many keys share a slot at the most: of what taking keys in costs, what counting all tuples by slot may, for as
much more is found of keys chosen by that.  Where more share one it tells less than the look."""
_PART_KEYS = 0.02
"""Distinct values a tuple that a part of a key is taken to have, before it is looked at."""
SPARE = 0.97
"""Of the grant, what a forecast may plan to spend."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """One contestant.  cost: ns of CPU; pairs: that it is expected to give; quality: in [0, 1], by the preference: the
    share of all pairs (desc) or of all outliers (asc), or how many pairs drawn evenly from all would tell as much
    (weighted, as a share of all); why: in words; admission: what comes in under `keys`; within: ns within which
    partners are looked for, None for all time."""

    strategy: str
    cost: float
    pairs: float
    quality: float
    why: str
    admission: Admission | None = None
    within: int | None = None

    def line(self, runs: bool, exact: float) -> str:
        """It in words, marked where it is the one that runs.  exact: ns of the exact answer."""
        cost = f"{self.cost / 1e6:,.1f} ms ({self.cost / exact:.0%} of exact)"
        worth = f"about {self.pairs:,.0f} pairs, quality {self.quality:.3g}"
        return f"  {'*' if runs else ' '} {self.strategy}: {cost}, {worth}: {self.why}"


class Work:
    """What the steps of a run over two streams cost in all, ns, at given prices.

    keys: distinct ones; hashed: the share of the tuples whose key is text; hashing: of all text before a first pass
    that admits tuples, but of dictionaries, whose values were looked at; recounting: all tuples counted by slot; pair:
    of the exact join, of tuples that lie near each other, and far: of all besides; keyed: a pair written key after key;
    outlier: one of an outlier, the rarest first; each with what it takes besides.
    """

    def __init__(self, look: Look, prices: Prices, asking: float = 0.0) -> None:
        """asking: ns that each pair takes besides."""
        self.prices = prices
        self._asking = asking
        self.keys = look.distinct
        self.tuples = sum(look.tuples)
        self.hashed = look.hashed / max(1, self.tuples)
        self._plain = look.unhashed / max(1, self.tuples)
        self._look = look
        self.reading = reading(look.joined.streams, prices)
        self.looking = prices.seen * look.looked + prices.weigh * look.slots + prices.taken * look.looked_hashed
        self.hashing = prices.words * look.unhashed
        # Of a dictionary each value has its slot looked for once.
        self.recounting = prices.slot * (self.tuples - 0.5 * (look.hashed - look.unhashed) + (1 << look.finest))
        self.passing = prices.look * self.tuples
        self.tossing = prices.toss * self.tuples
        self._matches = look.pairs / max(1, self.tuples)
        self.pair = asking + prices.pairing(self._matches, self.hashed)
        self.outlier = asking + prices.of_outlier(self.hashed)
        self.keyed = asking + prices.keying(self._matches, self.hashed)
        self._paired = max(1e-3, look.paired)
        within = 0.5 * look.closeness * self.tuples
        self._chained = within <= _SHORT and self.tuples >= _LONG
        self._sifts = self._paired < _MANY and not self._chained
        self.far = prices.reaching(self._matches, within * self._paired if self._sifts else within)

    def drawn(self, tuples: float, room: float) -> float:
        """A pair of a sample, where there is so much room, in ns, for those of so many tuples.

        What lies near the pair before costs less.
        """
        few = price = 1.0
        for _ in range(_ROUNDS):
            price = self._asking + self.prices.drawing(min(few, self._matches), self.hashed)
            few = max(0.0, room) / max(1.0, tuples * price)
        return price

    def exact(self, pairs: float) -> float:
        """The exact answer, read and handed out."""
        joining, paired = self.joining(self.tuples, self.keys, pairs, chained=self._chained), self._paired
        if self._sifts:
            joining = self.sifting(self.tuples) + self.joining(paired * self.tuples, paired * self.keys, pairs)
        return self.reading + joining + pairs * (self.pair + self.far)

    def sifting(self, tuples: float) -> float:
        """So many tuples told by their keys whether they may have partners; text is hashed for that."""
        return tuples * (self.prices.sift + (1.0 - self._paired) * self._plain * self.prices.words)

    def coding(self, keys: float, tuples: float) -> float:
        """The key of one of so many tuples as joins take it, among so many distinct ones."""
        coded = self.prices.coding(keys, self._plain, sparse=self._look.is_sparse(tuples))
        # Of a dictionary each value once, in each stream.
        values = (self.hashed - self._plain) * min(1.0, 2.0 * keys / max(1.0, tuples))
        return coded + values * self.prices.coding(keys, 1.0)

    def joining(self, tuples: float, keys: float, pairs: float, *, chained: bool = False) -> float:
        """The exact join of some of the tuples, without their pairs."""
        each = self.coding(keys, tuples) + self.prices.joining(keys, pairs / max(1.0, tuples), chained=chained)
        return tuples * each

    def listing(self, tuples: float, keys: float) -> float:
        """Some of the tuples listed by key, those without partners told by their keys where many have none."""
        sifted = 0.0
        if self._paired < _MANY:
            sifted, tuples, keys = self.sifting(tuples), self._paired * tuples, self._paired * keys
        return sifted + tuples * (self.coding(keys, tuples) + self.prices.listing(keys))

    def counting(self, tuples: float, keys: float) -> float:
        """Some of the tuples listed by key, and what stands around each counted; as of `listing`."""
        sifted = 0.0
        if self._paired < _MANY:
            sifted, tuples, keys = self.sifting(tuples), self._paired * tuples, self._paired * keys
        return sifted + tuples * (self.coding(keys, tuples) + self.prices.counting(keys))

    def taking(self, share: float, *, counting: bool) -> float:
        """A tuple that came in, where a share of the keys does: copied, and listed or counted."""
        keys, tuples = max(1.0, share * self.keys), max(1.0, share * self.tuples)
        listed = self.counting(tuples, keys) if counting else self.listing(tuples, keys)
        return self.copying + listed / tuples

    @property
    def copying(self) -> float:
        """A tuple that came in copied, with its key."""
        return self.prices.copy + self._plain * self.prices.text


def reading(streams: Sequence[Loaded], prices: Prices) -> float:
    """ns that reading all streams costs, and making one key of several columns; one that joins itself is read once."""
    once = {id(one.key): one for one in streams}.values()
    tuples = sum(map(len, once))
    spent = prices.begin
    for one in once:
        spent += prices.reading(one.source, is_hashed(one.told.type)) * len(one)
        for part in one.parts:
            spent += prices.coding(_PART_KEYS * tuples, is_hashed(part.type)) * len(one)
    return spent


def forecasts(look: Look, work: Work, preference: str, cap: int, grant: float) -> list[Forecast]:
    """All contestants for a grant of ns, those that cost more than the grant among them.  cap: of outliers."""
    n, pairs, prices = work.tuples, look.pairs, work.prices
    whole = work.exact(pairs)
    asc = preference == "asc"
    desc = preference == "desc"
    counting = work.counting if asc else work.listing
    counted = work.reading + work.looking + counting(n, work.keys)
    weighed = look.weighed(cap if asc else 0)
    wanted = float(weighed[1].sum()) if asc else pairs
    emit = work.keyed if desc else work.outlier
    exact = Forecast("exact", counted + wanted * emit if asc else whole, wanted, 1.0, "every pair")
    if preference == "weighted":
        counted += prices.solve + n * prices.draw
        emit = work.drawn(n, SPARE * grant - counted)
    few = min(wanted, max(0.0, SPARE * grant - counted) / emit)
    what = {
        "asc": "outliers alone",
        "desc": "the pairs of the keys with most per tuple",
        "weighted": "pairs drawn evenly from all",
    }[preference]
    counts = Forecast(
        "counts", counted + few * emit, few, _share(few, wanted), f"all tuples counted, then {what} written"
    )
    base, passing = work.reading + work.looking, work.hashing + work.passing
    if preference == "weighted":
        base, passing = base + prices.solve, passing + work.tossing
    left = SPARE * grant - base - passing
    if preference == "weighted":
        admission, worth = sampled_keys(look, work, left)
        why = "keys by hash, tuples of heavy ones by coin; drawn among their pairs"
    else:
        # Told as if keys were chosen by the look: those chosen by all counts are worth more than what counting takes,
        # where that is little of what taking them in does.
        admission = best_keys(weighed, work, left, counting=asc)
        taking = admission.cost - admission.pairs * emit
        shared = look.distinct / (1 << look.finest)  # keys a slot
        paid = next((share for most, share in _FINER if shared <= most), 0.0) * taking
        finer = max(look.every) > 1 and work.recounting <= paid
        admission = replace(admission, finer=finer)
        worth = _share(admission.pairs, float(weighed[1].sum()))
        why = "rare keys" if asc else "keys with most pairs per tuple"
    cost = base + passing + admission.cost
    keys = Forecast("keys", cost, admission.pairs, worth, f"{why}; the rest refused unencoded", admission)
    summary = Forecast("summary", base, 0.0, 0.0, "counts by slot alone: how many pairs there are, none of them")
    promise = Forecast(
        "promise", work.reading + n * (prices.code + prices.promise), pairs * min(1.0, grant / whole), 0.0,
        "promising regions tuple by tuple: for streams that come as they go",
    )  # fmt: skip
    if not desc:
        return [exact, counts, keys, summary, promise]
    return [exact, counts, keys, _prefix(look, work, base, SPARE * grant), summary, promise]


def _prefix(look: Look, work: Work, base: float, grant: float) -> Forecast:
    """The largest first part of both streams that the grant pays for.  base: ns of what comes before."""
    share = first_part(look, work, grant - base)
    found = look.pairs_within(share)
    why = f"the first {share:.0%} of both streams joined; the rest refused unencoded"
    none, cost = np.zeros(0, np.uint8), _part_cost(look, work, share)
    first = Admission(none, np.array([share]), np.ones(1), np.ones(1), cost, found * look.pairs)
    return Forecast("prefix", base + first.cost, first.pairs, found, why, first)


def _part_cost(look: Look, work: Work, share: float) -> float:
    """ns that so large a part of both streams takes, one after the other in time, with its pairs."""
    return share * work.listing(work.tuples, work.keys) + look.pairs_within(share) * look.pairs * work.keyed


def first_part(look: Look, work: Work, room: float) -> float:
    """The share of both streams, of those one after the other in time, that the room pays for, in ns."""
    low, high = 0.0, 1.0
    for _ in range(20):
        share = 0.5 * (low + high)
        if _part_cost(look, work, share) <= room:
            low = share
        else:
            high = share
    return low


def choose(
    candidates: list[Forecast], grant: float, start: float = 0.0, of: Callable[[float], list[Forecast]] | None = None
) -> Forecast:
    """The best that the grant pays for; of equals the cheapest.  Promise and summary are chosen by name alone.

    start: ns beyond the grant at which the whole answer is still better than a part of it that finds less, and hardly
    more for each ns; of: the candidates for another grant: what a part finds is asked of the least one to which the
    whole answer is so near, or it would give way to a part where there is more budget.
    Where the grant pays for no pair of any, since a pass over the input costs more, the exact answer.
    """
    best, exact = _best(candidates, grant)
    if not grant < exact.cost <= grant + start or best.quality >= _ALL * exact.quality:
        return best
    least = max(start, exact.cost - start)
    part = best if of is None or least >= grant else _best(of(least), least)[0]
    return exact if part.quality * exact.cost <= _ALIKE * exact.quality * part.cost else best


def _best(candidates: list[Forecast], grant: float) -> tuple[Forecast, Forecast]:
    """The best of those that the grant pays for, and the whole answer."""
    finding = [each for each in candidates if each.strategy not in ("promise", "summary")]
    exact = next(each for each in finding if each.strategy == "exact")
    least = min(1.0, _LEAST * exact.pairs)
    paid = [each for each in finding if each.cost <= grant and (each.pairs >= least > 0.0 or each is exact)]
    return max(paid, key=lambda each: (each.quality, -each.cost), default=exact), exact


def best_keys(
    weighed: tuple[Array, Array, Array], work: Work, room: float, *, counting: bool = False, done: Array | None = None
) -> Admission:
    """As many slots as the room pays for, in ns, the best first.

    weighed: by `Look.weighed`; counting: whether tuples that come in are counted, not only listed; done: bool [slots],
    which are left out.
    """
    tuples, wanted, order = weighed
    if done is not None:
        order = order[~done[order]]
    # The price of a tuple falls with the keys that come in: as many as the room would pay for at the price of all.
    whole = float(tuples.sum()) * work.taking(1.0, counting=counting)
    price = work.taking(min(1.0, max(0.0, room) / max(1.0, whole)), counting=counting)
    emit = work.outlier if counting else work.keyed
    costs = tuples[order] * price
    taking = np.cumsum(costs)
    written = np.cumsum(wanted[order] * emit)
    # The last slot may have more pairs than are paid for.
    count = int(np.searchsorted(taking + written - wanted[order] * emit, room, side="right")) if room > 0.0 else 0
    stratum = np.zeros(tuples.shape[0], np.uint8)
    stratum[order[:count]] = 1
    one = np.ones(2)
    cost, expected = 0.0, 0.0
    if count:
        cost = min(room, float(taking[count - 1] + written[count - 1]))
        expected = min(float(wanted[order[:count]].sum()), max(0.0, cost - float(taking[count - 1])) / emit)
    return Admission(stratum, np.array([0.0, 1.0]), one, one, cost, expected)


def sampled_keys(look: Look, work: Work, room: float) -> tuple[Admission, float]:
    """Rates of keys and tuples under which totals vary least for the room, in ns; and what the sample is worth."""
    heavy, met = look.heaviest(_LISTED, _SURE)
    tuples = look.seen.sum(axis=1) * np.array(look.every, np.float64)
    counts = met.astype(np.float64)
    # Both streams may have been looked at unalike: by the denser, the sparser is scaled up.
    stands = float(min(look.every))
    counts *= np.array(look.every) / stands
    pairs = max(1.0, look.pairs)
    sizes = sizes_of(
        np.array([pairs]), np.maximum(tuples, 1.0)[None, :], int(look.keys), counts[None, :, :],
        np.array([stands]), np.array([look.alike]),
    )  # fmt: skip
    whole = work.tuples * work.taking(1.0, counting=False)
    share = min(1.0, max(0.0, room) / max(1.0, whole))
    prices = work.prices
    taking = work.taking(share, counting=False) + prices.draw + prices.tell
    # Half of the room goes to pairs, or about as much: what one costs does not fall fast with that.
    emitting = work.drawn(0.5 * share * work.tuples, 0.5 * room)
    strata = best_strata(sizes, max(1.0, room), taking, emitting)
    stratum = np.zeros(look.slots, np.uint8)
    stratum[heavy] = 1 + np.arange(heavy.shape[0], dtype=np.uint8)
    came = float((sizes.keys * sizes.pairs * strata.level * strata.left * strata.right * strata.rate).sum())
    admission = Admission(stratum, strata.level[0], strata.left[0], strata.right[0], float(strata.cost.sum()), came)
    return admission, _worth(sizes.pairs[0], sizes.keys[0], strata, came, pairs)


def _worth(pairs: Array, keys: Array, strata: Strata, came: float, total: float) -> float:
    """Of all pairs, how many drawn evenly would tell a total as well as these strata do."""
    inside = strata.level[0] * np.minimum(strata.left[0], strata.right[0])
    missed = float((keys * pairs * pairs * (1.0 / np.maximum(inside, 1e-9) - 1.0)).sum()) / (total * total)
    drawn = 1.0 / max(came, 1e-9) - 1.0 / max(total, came, 1e-9)
    return _share(1.0 / (missed + drawn + 1.0 / total), total)


def _share(part: float, whole: float) -> float:
    return min(1.0, part / whole) if whole > 0.0 else 1.0
