"""The laws of the summary ADT, over the catalogue: a new summary is tested by being listed there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nile.pyramid.grid.directory import KeyDirectory
from nile.summaries.catalogue import CATALOGUE, make_summary, read_summary
from nile.summaries.countsketch import CountMin, CountSketch
from nile.summaries.envelope import Envelope
from nile.summaries.errors import ConfigError, EnvelopeError, KeyTypeError, NotLinear, SummaryMismatch
from nile.summaries.estimate import Estimate
from nile.summaries.exact import ExactCounter
from nile.summaries.ordered import Histogram, Wavelet
from nile.summaries.summary import TOP, Summary

Array = np.ndarray[Any, Any]
Batch = list[tuple[int, int]]

every_summary = pytest.mark.parametrize("name", sorted(CATALOGUE))
every_exact_merge = pytest.mark.parametrize("name", sorted(n for n, s in CATALOGUE.items() if s.exact_merge))
every_linear_summary = pytest.mark.parametrize("name", sorted(n for n, s in CATALOGUE.items() if s.linear))
law = settings(deadline=None, max_examples=25)

few_keys = st.integers(0, 12).map(lambda k: (k * 0x9E3779B97F4A7C15) % 2**64)
keys = few_keys | st.integers(0, 2**64 - 1)
batches = st.lists(st.tuples(keys, st.integers(1, 1000)), max_size=40)
signed_batches = st.lists(st.tuples(keys, st.integers(-1000, 1000)), max_size=40)


def hashes(batch: Batch) -> Array:
    return np.array([key for key, _ in batch], np.uint64)


def weights(batch: Batch) -> Array:
    return np.array([weight for _, weight in batch], np.int64)


def summary_of(name: str, batch: Batch) -> Summary:
    summary = make_summary(name)
    summary.summarize(hashes(batch), weights(batch))
    return summary


def added(left: Summary, right: Summary) -> Summary:
    result = left.copy()
    result.add(right)
    return result


@every_exact_merge
@law
@given(a=batches, b=batches)
def test_adding_is_commutative(name: str, a: Batch, b: Batch) -> None:
    left, right = summary_of(name, a), summary_of(name, b)
    assert added(left, right).to_bytes() == added(right, left).to_bytes()


@every_exact_merge
@law
@given(a=batches, b=batches, c=batches)
def test_adding_is_associative(name: str, a: Batch, b: Batch, c: Batch) -> None:
    first, second, third = (summary_of(name, batch) for batch in (a, b, c))
    assert added(added(first, second), third).to_bytes() == added(first, added(second, third)).to_bytes()


@every_summary
@law
@given(a=batches)
def test_empty_is_the_identity_of_add(name: str, a: Batch) -> None:
    summary = summary_of(name, a)
    assert added(summary, summary.empty()).to_bytes() == summary.to_bytes()
    assert added(summary.empty(), summary).to_bytes() == summary.to_bytes()


@every_exact_merge
@law
@given(a=batches, b=batches)
def test_adding_is_the_same_as_having_seen_both(name: str, a: Batch, b: Batch) -> None:
    assert added(summary_of(name, a), summary_of(name, b)).to_bytes() == summary_of(name, a + b).to_bytes()


@every_linear_summary
@law
@given(a=signed_batches, b=signed_batches)
def test_subtract_undoes_add_bit_for_bit(name: str, a: Batch, b: Batch) -> None:
    summary, other = summary_of(name, a), summary_of(name, b)
    before = summary.to_bytes()
    summary.add(other)
    summary.subtract(other)
    assert summary.to_bytes() == before


@every_linear_summary
@law
@given(a=signed_batches)
def test_a_summary_less_itself_is_empty(name: str, a: Batch) -> None:
    summary = summary_of(name, a)
    summary.subtract(summary)
    assert summary.to_bytes() == make_summary(name).to_bytes()


@every_summary
@law
@given(a=batches, cuts=st.lists(st.integers(0, 40), max_size=4))
def test_one_batch_or_many_answer_alike(name: str, a: Batch, cuts: list[int]) -> None:
    whole, parts = summary_of(name, a), make_summary(name)
    edges = [0, *sorted(min(cut, len(a)) for cut in cuts), len(a)]
    for begin, end in pairwise(edges):
        parts.summarize(hashes(a[begin:end]), weights(a[begin:end]))
    assert parts.to_bytes() == whole.to_bytes()


@every_summary
@law
@given(a=st.lists(st.tuples(keys, st.integers(1, 4)), max_size=20))
def test_a_weight_is_that_many_tuples(name: str, a: Batch) -> None:
    repeated = make_summary(name)
    repeated.summarize(np.array([key for key, weight in a for _ in range(weight)], np.uint64))
    assert repeated.to_bytes() == summary_of(name, a).to_bytes()


def traces(make: Callable[[], Summary], seeds: range) -> list[int]:
    """Seeds of random pushes and deletes, in any order and cut, after which other bytes stand than of what is left."""
    wrong = []
    for seed in seeds:
        draw = np.random.default_rng(seed)
        keys = draw.integers(0, 2**63, int(draw.integers(1, 30))).astype(np.uint64)
        came = draw.choice(keys, int(draw.integers(0, 60)))
        gone = draw.random(came.shape[0]) < draw.random()
        both, left = make(), make()
        order = draw.permutation(int(gone.sum()))
        events = [(part, 1) for part in np.array_split(came, 3)] + [
            (part, -1) for part in np.array_split(came[gone][order], 2)
        ]
        for part, sign in events:
            both.summarize(part, np.full(part.shape[0], sign))
        left.summarize(came[~gone])
        if both.to_bytes() != left.to_bytes():
            wrong.append(seed)
    return wrong


LINEAR: dict[str, Callable[[], Summary]] = {
    "countsketch": lambda: CountSketch(3, 16),
    "countmin": lambda: CountMin(3, 16),
    "histogram": Histogram,
    "wavelet": lambda: Wavelet(bits=8, columns=8),
    "exact": ExactCounter,
    "directory": KeyDirectory,
}


def test_every_linear_summary_is_tried_for_traces() -> None:
    assert set(LINEAR) - {"directory"} == {name for name, each in CATALOGUE.items() if each.linear}


@pytest.mark.parametrize("name", sorted(LINEAR))
def test_what_came_and_went_leaves_no_trace(name: str) -> None:
    assert traces(LINEAR[name], range(300)) == []


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(LINEAR))
def test_what_came_and_went_leaves_no_trace_in_ten_thousand_cases(name: str) -> None:
    assert traces(LINEAR[name], range(1_000, 11_000)) == []


@every_linear_summary
@law
@given(a=batches)
def test_a_negative_weight_takes_tuples_back(name: str, a: Batch) -> None:
    summary = summary_of(name, a)
    summary.summarize(hashes(a), -weights(a))
    assert summary.to_bytes() == make_summary(name).to_bytes()


@every_summary
@law
@given(a=batches)
def test_bytes_give_back_the_same_summary(name: str, a: Batch) -> None:
    summary = summary_of(name, a)
    again = read_summary(summary.to_bytes())
    assert type(again) is type(summary)
    assert again.to_bytes() == summary.to_bytes()
    assert again.total == summary.total == sum(weight for _, weight in a)
    assert again.estimate(hashes(a)) == summary.estimate(hashes(a))
    again.add(summary)  # what was read can be written to


@every_summary
@law
@given(a=batches)
def test_an_estimate_lies_in_its_interval_and_a_confidence_in_zero_to_one(name: str, a: Batch) -> None:
    summary = summary_of(name, a)
    estimate = summary.estimate(hashes(a))
    assert np.shape(estimate.value) == (len(a),)
    assert np.all((estimate.low <= estimate.value) & (estimate.value <= estimate.high))
    assert 0.0 < summary.confidence() <= 1.0


@every_summary
def test_an_empty_summary_knows_nothing_and_trusts_it(name: str) -> None:
    summary = make_summary(name)
    summary.summarize(np.zeros(0, np.uint64))
    summary.summarize(np.zeros(0, np.uint64), np.zeros(0, np.int64))
    assert (summary.total, summary.saturated, summary.confidence()) == (0, False, 1.0)
    assert np.array_equal(summary.estimate(np.arange(3, dtype=np.uint64)).high, np.zeros(3))


@every_summary
def test_a_copy_shares_no_memory_and_neither_does_what_was_added(name: str) -> None:
    summary = summary_of(name, [(5, 7)])
    copy, before = summary.copy(), summary.to_bytes()
    copy.summarize(np.array([5, 6], np.uint64))
    assert summary.to_bytes() == before


@every_summary
def test_strided_and_read_only_hashes_count_like_plain_ones(name: str) -> None:
    plain = np.arange(0, 600, 2, dtype=np.uint64)
    frozen = plain.copy()
    frozen.flags.writeable = False
    summaries = [make_summary(name) for _ in range(3)]
    for summary, batch in zip(summaries, (plain, np.arange(600, dtype=np.uint64)[::2], frozen), strict=True):
        summary.summarize(batch, np.ones(300, np.uint8))
    assert len({summary.to_bytes() for summary in summaries}) == 1


@every_summary
def test_counters_saturate_and_flag_and_never_wrap(name: str) -> None:
    summary = make_summary(name)
    key = np.array([42], np.uint64)
    summary.summarize(key, np.array([TOP - 5]))
    summary.summarize(np.repeat(key, 5))
    assert (summary.saturated, summary.total) == (False, TOP)
    assert summary.estimate(key).value == pytest.approx(TOP)
    summary.summarize(key)
    assert (summary.saturated, summary.total) == (True, TOP + 1)
    estimate = summary.estimate(key)
    assert estimate.value == pytest.approx(TOP)
    assert (estimate.confidence, estimate.certified) == (0.0, False)


@every_summary
def test_one_batch_heavier_than_a_counter_saturates_too(name: str) -> None:
    summary = make_summary(name)
    summary.summarize(np.full(8, 42, np.uint64), np.full(8, TOP // 2))
    assert (summary.saturated, summary.total) == (True, 8 * (TOP // 2))
    assert summary.estimate(np.array([42], np.uint64)).value == pytest.approx(TOP)


@every_summary
def test_a_heavy_batch_over_many_keys_does_not_saturate(name: str) -> None:
    summary = make_summary(name)
    batch = [(key * 0x9E3779B97F4A7C15 % 2**64, 1 << 59) for key in range(12)]
    summary.summarize(hashes(batch), weights(batch))
    summary.add(summary_of(name, [(1, 3)]))
    assert (summary.saturated, summary.total) == (False, 12 * (1 << 59) + 3)


@every_linear_summary
def test_the_most_negative_weight_stops_at_the_low_end(name: str) -> None:
    key = np.array([42], np.uint64)
    summary = make_summary(name)
    for _ in range(2):
        summary.summarize(key, np.array([-(2**63)]))
    assert (summary.saturated, summary.total) == (True, -(2**64))
    summary.summarize(key, np.array([TOP]))
    summary.summarize(key, np.array([3]))
    assert summary.estimate(key).value == 3.0


@every_summary
def test_adding_two_heavy_summaries_saturates_and_the_flag_travels(name: str) -> None:
    heavy = summary_of(name, [(42, TOP - 1)])
    heavy.add(heavy.copy())
    assert heavy.saturated
    assert heavy.total == 2 * (TOP - 1)
    assert read_summary(heavy.to_bytes()).saturated
    assert added(make_summary(name), heavy).saturated


@every_linear_summary
def test_subtracting_past_the_low_end_saturates(name: str) -> None:
    low = summary_of(name, [(42, -TOP)])
    low.subtract(summary_of(name, [(42, TOP)]))
    assert (low.saturated, low.total) == (True, -2 * TOP)


@every_summary
def test_a_summary_of_another_kind_is_refused_by_name(name: str) -> None:
    summary = make_summary(name)
    stranger = Seen()
    with pytest.raises(SummaryMismatch, match=r"add: needed another .*; got Seen\(\)"):
        summary.add(stranger)
    with pytest.raises(SummaryMismatch, match="Seen"):
        stranger.add(summary)
    with pytest.raises(SummaryMismatch, match="got int"):
        summary.add(7)  # type: ignore[arg-type]


def test_sketches_of_other_shape_or_seed_are_refused_and_both_are_named() -> None:
    sketch = CountSketch(rows=5, columns=1024, seed=1)
    for other in (CountSketch(3, 1024, 1), CountSketch(5, 512, 1), CountSketch(5, 1024, 2), ExactCounter()):
        for combine in (sketch.add, sketch.subtract):
            with pytest.raises(SummaryMismatch) as caught:
                combine(other)
            assert sketch.describe() in str(caught.value)
            assert other.describe() in str(caught.value)
    assert sketch.describe() != CountSketch(5, 1024, 2).describe()


@every_summary
@pytest.mark.parametrize(
    "wrong",
    [np.arange(3), np.zeros((2, 2), np.uint64), np.array(3, np.uint64), [1, 2], np.array([1.5])],
    ids=["signed", "two-dimensional", "scalar", "list", "float"],
)
def test_keys_that_are_not_hashes_are_refused(name: str, wrong: Any) -> None:
    summary = make_summary(name)
    with pytest.raises(KeyTypeError, match=r"uint64 \[n\]; got .*hash_keys"):
        summary.summarize(wrong)
    with pytest.raises(KeyTypeError):
        summary.estimate(wrong)


@every_summary
@pytest.mark.parametrize(
    "wrong",
    [np.ones(2, np.int64), np.ones(3), np.array([1, 2, 2**63], np.uint64), np.ones((3, 1), np.int64)],
    ids=["short", "float", "past int64", "two-dimensional"],
)
def test_weights_that_do_not_fit_are_refused_before_anything_is_counted(name: str, wrong: Array) -> None:
    summary = make_summary(name)
    with pytest.raises(ConfigError, match=r"weights need to be int64 \[3\]"):
        summary.summarize(np.arange(3, dtype=np.uint64), wrong)
    assert summary.to_bytes() == make_summary(name).to_bytes()


@every_summary
def test_bytes_of_another_kind_are_refused(name: str) -> None:
    other = next(kind for kind in sorted(CATALOGUE) if kind != name)
    data = make_summary(other).to_bytes()
    with pytest.raises(EnvelopeError, match=f"needed a summary of kind '{name}'; got '{other}'"):
        CATALOGUE[name].from_bytes(data)
    with pytest.raises(EnvelopeError, match=r"zone 7: needed a summary of kind .*; got 'seen'"):
        read_summary(Seen().to_bytes(), where="zone 7")


def test_a_summary_that_is_not_linear_says_so() -> None:
    summary = Seen()
    summary.summarize(np.array([1, 2], np.uint64))
    with pytest.raises(NotLinear, match=r"subtract: needed a linear summary; got Seen\(\)"):
        summary.subtract(Seen())
    with pytest.raises(NotLinear, match="weights >= 0"):
        summary.summarize(np.array([1], np.uint64), np.array([-1]))
    assert summary.estimate(np.array([1, 3], np.uint64)).value.tolist() == [1.0, 0.0]  # type: ignore[union-attr]


def test_the_catalogue_makes_summaries_by_name_and_options() -> None:
    sketch = make_summary("countsketch", rows=3, columns=256, seed=9)
    assert sketch.describe() == CountSketch(3, 256, 9).describe()
    with pytest.raises(ConfigError, match="did you mean 'countsketch'"):
        make_summary("countsketh")
    with pytest.raises(ConfigError, match="did you mean 'columns'"):
        make_summary("countsketch", column=3)
    with pytest.raises(ConfigError, match="got 'rows'"):
        make_summary("exact", rows=3)


class Seen(Summary):
    """Which hashes were ever there: the simplest summary that is not linear."""

    kind: ClassVar[str] = "seen"
    linear: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.keys: Array = np.zeros(0, np.uint64)

    @property
    def nbytes(self) -> int:
        return int(self.keys.nbytes)

    def estimate(self, hashes: Array) -> Estimate:
        return Estimate.exact(np.isin(hashes, self.keys).astype(np.float64))

    def confidence(self) -> float:
        return 1.0

    def empty(self) -> Self:
        return type(self)()

    def _insert(self, hashes: Array, weights: Array | None) -> None:  # noqa: ARG002
        self.keys = np.union1d(self.keys, hashes)

    def _combine(self, other: Seen, sign: int) -> None:  # noqa: ARG002
        self.keys = np.union1d(self.keys, other.keys)

    def _shape(self) -> Mapping[str, object]:
        return {}

    def _params(self) -> Mapping[str, Any]:
        return {}

    def _arrays(self) -> Mapping[str, Array]:
        return {"keys": self.keys}

    @classmethod
    def _restore(cls, envelope: Envelope) -> Self:
        seen = cls()
        seen.keys = envelope.array("keys", "<u8", (None,)).copy()
        return seen
