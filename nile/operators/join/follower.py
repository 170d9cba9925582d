"""The weighted join of live streams, whose rates follow what is granted: its place in the sample, and its coins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nile.exact.state.held import MOST, Held, State
from nile.operators.common.plan import JoinPlan
from nile.preferences import state as st
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.join import follow_kernels, sampling
else:
    follow_kernels = lazy("nile.operators.join.follow_kernels")
    sampling = lazy("nile.operators.join.sampling")

__all__ = ["Follower", "draws_ranges", "expect", "follow_share", "is_followed", "is_timed"]

Array = np.ndarray[Any, Any]
_OUTPUTS = 16.0  # outputs
_LARGEST = 1e60  # of what is held
_FOR, _FOR_LONG = 128, 512  # arrivals that what is expected counts for
_MEMORY = 512  # arrivals that the mean grant is of (`nile.preferences.follow_kernels`)


def is_followed(plan: JoinPlan) -> bool:
    """Whether a live plan asks for pairs drawn at rates that follow grants.

    Those of a fraction tell how much; time buys one of what comes with each push.
    """
    return plan.output == "pairs" and _follows(plan, ("fraction", "deadline", "seconds_per_tuple", "share"))


def draws_ranges(plan: JoinPlan) -> bool:
    """Whether a plan over finite streams asks for a sample of range records, whose tuples all have one probability."""
    return plan.output == "ranges" and plan.method == "nile" and not plan.pace.is_replay and _follows(plan)


def _follows(plan: JoinPlan, units: tuple[str, ...] = ("fraction",)) -> bool:
    return (
        plan.preference == "weighted" and plan.budget.unit in units and not plan.is_exact and not plan.spec.forgetting
    )


def is_timed(plan: JoinPlan) -> bool:
    """Whether a plan asks for a sample that can be planned once a clock has told how much work there is time for."""
    return (
        plan.method == "nile"
        and plan.preference == "weighted"
        and plan.budget.unit in ("seconds", "seconds_per_tuple", "deadline")
        and not plan.is_exact
        and not plan.pace.is_replay
        and not plan.spec.forgetting
    )


def expect(state: st.Clocked, others: int, mean: float | None) -> None:
    """What arrivals are expected to grant before any has come.  others: streams that a tuple is looked up in.

    mean: of the whole input, where it is there; None: as if each found some outputs.  Too many expected thins tuples
    for a while; too few would drop keys, whole, from all of the first window.
    """
    prices = state.prices
    exact = prices[st.P_INSERT] + others * prices[st.P_LOOKUP] + _OUTPUTS * prices[st.P_EMIT]
    state.real[st.PER_ARRIVAL] = state.real[st.FRACTION] * exact if mean is None else mean
    state.whole[st.CONTROLS] = _FOR if mean is None else _FOR_LONG


def follow_share(state: st.Clocked, share: float, to_come: Array) -> None:
    """Grants are so much of exact costs from here on, and rates go by it as if all that came had granted it.

    to_come: what arrivals that are there and have not been dealt with grant, which they go by first: a rate that lags
    behind what is known thins tuples for what others had.
    """
    real, known = state.real, min(to_come.shape[0], _MEMORY)
    real[st.PER_ARRIVAL] *= share / real[st.FRACTION]
    real[st.FRACTION] = share
    if known:
        real[st.PER_ARRIVAL] += (float(to_come.mean()) - real[st.PER_ARRIVAL]) * known / _MEMORY


class Follower:
    """One run over live streams; a `nile.operators.join.runners.Runner`."""

    def __init__(self, plan: JoinPlan) -> None:
        none = np.zeros((0, 0))
        whole = np.zeros(0, np.int64)
        real = np.zeros(sampling.REAL_FIELDS)
        self.sampling = sampling.Sampling(
            level=none, left=none, right=none, rate=none, slot=np.zeros((0, 0), np.uint8), ends=whole,
            to_come=np.zeros(0), held=np.zeros(0), price=np.zeros(0), every=whole, left_thinned=np.zeros(0),
            right_thinned=np.zeros(0),
            factors=np.zeros(0), changes=np.zeros((0, 2), np.int64), lines=real[:2].reshape(1, 2),
            block=np.zeros((0, 0, sampling.BLOCK_FIELDS), np.int64), books=np.zeros(sampling.BY_KEY + sampling.KEYS),
            luck=np.zeros(0), share=none,
            of=np.zeros((0, 2), np.int64), cells=np.zeros(0), thin=np.zeros(sampling.THIN_FIELDS),
            at=np.array([0, -1, 0, 0], np.int64), real=real,
        )  # fmt: skip
        phase = float(np.random.Generator(np.random.PCG64([plan.seed & 0xFFFFFFFF, 4])).random())
        self.sampling.real[:] = phase, phase, 0.0, 1.0, 0.0, 1.0, 0.0

    def expect(self, state: st.State, matches: float) -> None:
        """So many matches are expected of a tuple, before any has come."""
        prices = state.prices
        exact = prices[st.P_INSERT] + prices[st.P_LOOKUP] + matches * prices[st.P_EMIT]
        expect(state, 1, float(state.real[st.FRACTION] * exact))

    def rates(self, state: st.State) -> tuple[float, float, float]:
        """What the next tuple is given: level of key hashes, probability of its own coin, rate of its outputs."""
        level, kept, drawn = follow_kernels.rates_of(state)
        return float(level), float(kept), float(drawn)

    def dealt(self, share: float, alike: float) -> None:
        """Grants that come are multiplied by a share, of which rates know nothing: they go by `alike` times those."""
        self.sampling.real[sampling.DEALT] = share
        self.sampling.real[sampling.ALIKE] = alike - 1.0

    def step(self, left: Any, right: Any, order: Array, grant: Array, end: int, state: st.State, out: st.Output) -> int:
        """Run to arrival `end` or to where the kernel stopped; returns why (`nile.preferences.state`)."""
        return int(follow_kernels.follow(left, right, order, grant, end, state, self.sampling, out))

    def grow(self, state: st.State) -> None:
        """Nothing waits but the entry in progress, so the kernel never asks."""

    def regrant(self, more: float) -> None:
        """Nothing was planned with."""

    @property
    def undrawn(self) -> float:
        """Outputs that were to be expected and have not been drawn; below 0: that many more were."""
        return float(self.sampling.real[sampling.EXPECTED] - self.sampling.at[sampling.DRAWN])

    @property
    def thinned(self) -> tuple[Array, Array]:
        """The probability of each tuple by its own coin, from ordinal `ADMISSIONS_GONE` on; 0: it did not come in."""
        return self.sampling.left_thinned, self.sampling.right_thinned

    def put_thinned(self, side: int, thinned: Array) -> None:
        """Other room for the coins of a stream's tuples."""
        self.sampling = self.sampling._replace(**{"left_thinned" if side == 0 else "right_thinned": thinned})

    @property
    def foreseen(self) -> tuple[float, float]:
        """The matches of all tuples, whoever came in, and the variance of totals of samples at their rates."""
        books = self.sampling.books
        variance = float((books[sampling.BY_KEY :] ** 2).sum() + books[sampling.BY_TUPLE] + books[sampling.BY_PAIR])
        return float(books[sampling.MATCHES]), variance

    def capture(self) -> State:
        """The place in the sample; the coins of tuples are kept beside their levels."""
        return {name: getattr(self.sampling, name).copy() for name in ("at", "real", "books")}

    def restore(self, held: Held) -> None:
        """Be where another one was.  Raises EnvelopeError."""
        at = held.array("at", "int64", self.sampling.at.shape)
        real = held.array("real", "float64", self.sampling.real.shape)
        if (at < -1).any() or (at > MOST).any() or not np.isfinite(real).all() or not 0.0 <= real[1] <= 1.0:
            held.refuse("a place in a sample", "another")
        self.sampling.at[:], self.sampling.real[:] = at, real
        if held.has("books"):  # an older one kept none: from here on
            books = held.array("books", "float64", self.sampling.books.shape)
            if not ((books >= 0.0) & (books <= _LARGEST)).all():
                held.refuse("sums of what tuples add to a variance", "others")
            self.sampling.books[:] = books
        held.end()
