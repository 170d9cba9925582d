"""A window's end that moves by d, over a zone's or a granularity's border or not, moves an estimate by no more than
the tuples within d and twice what the sketch may err.

What may err is worked out apart from the index: in a row per key is mistaken by at most the tuples of other keys that
share its counters.  A zone cut by the window's end counts in proportion to time, so between borders "the tuples
within d" are those that the zones' own times put there; at borders, and where tuples come evenly, they are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.spec import SummarySpec

Array = np.ndarray[Any, Any]
ROUNDING = 1e-6  # of sums of shares
EVENLY = 2
"""Tuples by which a share of an evenly filled zone and a count of its tuples may differ at each cut."""

specs = st.builds(
    SummarySpec,
    granularity=st.sampled_from([6_000, 15_000, 40_000]),
    rate=st.integers(2, 4),
    depth=st.integers(2, 3),
    rows=st.integers(1, 4),
    buckets=st.sampled_from([1, 16]),
    columns=st.sampled_from([4, 64]),
    structure=st.sampled_from(["T3", "T4"]),
    max_zones=st.sampled_from([2, 4, 16]),
    max_length=st.sampled_from([None, 2_560, 6_000]),
    forgetting=st.booleans(),
    threshold=st.sampled_from([0.02, 0.3]),
    seed=st.integers(0, 3),
)


class Truth:
    """A manager, and what its zones hold, counted from the tuples."""

    def __init__(self, spec: SummarySpec, gaps: Array, keys: Array) -> None:
        self.ts = np.cumsum(gaps)
        self.manager = SummaryManager(spec)
        self.manager.ingest(self.ts, pa.array(keys))
        self.hashes = self.manager.keys.hashes()
        codes = self.manager.store.side.code[: keys.shape[0]]
        self.zones = self.manager.zones()
        known = self.hashes.shape[0]
        self.counts = np.array([np.bincount(codes[z.start : z.end], minlength=known) for z in self.zones])
        self.pairs = self.manager.index(1).cells(self.hashes) >> 1

    def shares(self, since: int) -> Array:
        """The share of each zone's time that is not before `since`: float64 [zones]."""
        return np.array([np.clip((z.last - since + 1) / (z.last - z.first + 1), 0.0, 1.0) for z in self.zones])

    def bound(self, since: int) -> Array:
        """By how much the sketch may mistake each key: float64 [keys]."""
        weights = self.shares(since) @ self.counts
        errors = [np.bincount(pair, weights)[pair] - weights for pair in self.pairs.T]
        worst: Array = np.max(errors, axis=0)
        return worst

    def estimate(self, since: int) -> Array:
        """What the manager estimates for each key: float64 [keys]."""
        value: Array = np.asarray(self.manager.estimate(self.hashes, since).value)
        return value

    def within(self, a: int, b: int) -> int:
        """Tuples with ts in [a, b)."""
        return int(np.searchsorted(self.ts, b) - np.searchsorted(self.ts, a))

    @property
    def borders(self) -> list[int]:
        """Where zones of any granularity begin, and one past where they end."""
        return sorted({z.first for z in self.zones} | {z.last + 1 for z in self.zones})


def random_keys(rng: np.random.Generator, n: int) -> Array:
    """Skewed keys, the heavy ones others in each third of the stream."""
    drawn: Array = (rng.zipf(1.4, n) + 31 * (3 * np.arange(n) // n)) % 300
    return drawn


def truth(spec: SummarySpec, gaps: Array, seed: int) -> Truth:
    made = Truth(spec, gaps, random_keys(np.random.default_rng(seed), gaps.shape[0]))
    assume(any(z.granularity > 1 for z in made.zones))  # COLLAPSE has happened
    return made


def assert_moves_at_most(made: Truth, a: int, b: int, tuples: float) -> None:
    moved = np.abs(made.estimate(a) - made.estimate(b))
    assert (moved <= tuples + made.bound(a) + made.bound(b) + ROUNDING).all()


@settings(max_examples=15)
@given(spec=specs, seed=st.integers(0, 50), n=st.integers(4_000, 9_000), data=st.data())
def test_from_border_to_border_an_estimate_moves_by_the_tuples_between(
    spec: SummarySpec, seed: int, n: int, data: st.DataObject
) -> None:
    made = truth(spec, np.random.default_rng(seed).integers(1, 30, n), seed)
    for _ in range(8):
        a, b = sorted(data.draw(st.sampled_from(made.borders)) for _ in range(2))
        assert_moves_at_most(made, a, b, made.within(a, b))


@settings(max_examples=15)
@given(
    spec=specs, gap=st.sampled_from([5, 10, 17]), seed=st.integers(0, 50), n=st.integers(4_000, 9_000), data=st.data()
)
def test_of_an_even_stream_an_estimate_moves_by_the_tuples_within_the_move(
    spec: SummarySpec, gap: int, seed: int, n: int, data: st.DataObject
) -> None:
    made = truth(spec, np.full(n, gap), seed)
    for _ in range(8):
        border = data.draw(st.sampled_from(made.borders))
        a = border - data.draw(st.integers(0, 3_000))
        b = border + data.draw(st.integers(0, 3_000))
        assert_moves_at_most(made, a, b, made.within(a, b) + 2 * EVENLY)


@settings(max_examples=15)
@given(spec=specs, seed=st.integers(0, 50), n=st.integers(4_000, 9_000), data=st.data())
def test_of_a_bursty_stream_an_estimate_moves_by_what_zones_put_within_the_move(
    spec: SummarySpec, seed: int, n: int, data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    made = truth(spec, np.where(rng.random(n) < 0.9, 1, rng.integers(1, 300, n)), seed)
    for _ in range(8):
        border = data.draw(st.sampled_from(made.borders))
        a = border - data.draw(st.integers(0, 3_000))
        b = border + data.draw(st.integers(0, 3_000))
        assert_moves_at_most(made, a, b, float((made.shares(a) - made.shares(b)) @ made.counts.sum(axis=1)))


@settings(max_examples=15)
@given(spec=specs, seed=st.integers(0, 50), n=st.integers(4_000, 9_000), data=st.data())
def test_a_nanosecond_over_a_border_moves_an_estimate_by_one_tuple(
    spec: SummarySpec, seed: int, n: int, data: st.DataObject
) -> None:
    """At a zone's first tuple, and just after its last, no zone is cut: neither side of the border may jump."""
    made = truth(spec, np.random.default_rng(seed).integers(1, 30, n), seed)
    for _ in range(6):
        border = data.draw(st.sampled_from(made.borders))
        longest = max(z.summarised / (z.last - z.first + 1) for z in made.zones)  # tuples a nanosecond
        for a, b in ((border - 1, border), (border, border + 1)):
            assert_moves_at_most(made, a, b, max(1.0, longest))


@settings(max_examples=10)
@given(spec=specs, seed=st.integers(0, 50), n=st.integers(4_000, 9_000), data=st.data())
def test_the_sum_of_a_granularity_s_parts_is_what_its_zones_hold(
    spec: SummarySpec, seed: int, n: int, data: st.DataObject
) -> None:
    """The estimate itself, not only its moves: within what the sketch may err of the share of each zone."""
    made = truth(spec, np.random.default_rng(seed).integers(1, 30, n), seed)
    for _ in range(6):
        since = data.draw(st.integers(int(made.ts[0]) - 10, int(made.ts[-1]) + 10))
        off = np.abs(made.estimate(since) - made.shares(since) @ made.counts)
        assert (off <= made.bound(since) + ROUNDING).all()
