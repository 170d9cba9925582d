"""Ready-made sketches: their bounds hold, the library agrees, nothing can be taken back."""

from __future__ import annotations

from typing import Any

import datasketches
import numpy as np
import pytest

from nile.summaries.catalogue import make_summary, read_summary
from nile.summaries.errors import ConfigError, EnvelopeError, NotLinear
from nile.summaries.ready import FrequentItems, HyperLogLog

RSE = 1.04 / np.sqrt(2048)
WITHIN = 4 * RSE  # four standard deviations

Array = np.ndarray[Any, Any]


def hashes(n: int, seed: int = 0) -> Array:
    return np.random.Generator(np.random.PCG64(seed)).integers(0, 2**64, n, np.uint64)


@pytest.mark.parametrize("n", [1, 50, 2_000, 100_000])
def test_distinct_keys_are_counted_within_the_stated_error(n: int) -> None:
    sketch = HyperLogLog()
    sketch.summarize(np.repeat(hashes(n), 3))
    estimate = sketch.distinct()
    assert estimate.value == pytest.approx(n, rel=WITHIN, abs=0.5)
    assert estimate.low <= estimate.value <= estimate.high
    assert estimate.certified


def test_two_deviations_cover_what_they_say() -> None:
    covered = 0
    for seed in range(200):
        sketch = HyperLogLog()
        sketch.summarize(hashes(3_000, seed))
        covered += bool(sketch.distinct().covers(3_000.0))
    assert covered >= 0.92 * 200


def test_it_is_the_librarys_sketch_whose_merge_it_equals() -> None:
    keys = hashes(5_000)
    theirs = datasketches.hll_union(11)
    mine = HyperLogLog(11)
    for part in np.array_split(keys, 5):
        sketch = datasketches.hll_sketch(11, datasketches.HLL_8)
        for key in part.view(np.int64).tolist():
            sketch.update(key)
        theirs.update(sketch)
        mine.summarize(part)
    assert mine.distinct().value == pytest.approx(theirs.get_result(datasketches.HLL_8).get_estimate(), rel=1e-12)


@pytest.mark.parametrize("name", ["hll", "frequent"])
def test_what_cannot_subtract_says_so(name: str) -> None:
    summary = make_summary(name)
    summary.summarize(hashes(5))
    with pytest.raises(NotLinear, match="needed a linear summary"):
        summary.subtract(summary.copy())
    with pytest.raises(NotLinear, match="weights >= 0"):
        summary.summarize(hashes(1), np.array([-1]))


def test_frequent_keys_are_kept_and_their_counts_bounded() -> None:
    chance = np.random.Generator(np.random.PCG64(1))
    names = hashes(20_000)
    drawn = names[(20_000 * chance.random(60_000) ** 4).astype(np.int64)]
    sketch = FrequentItems(capacity=200)
    for part in np.array_split(drawn, 13):
        sketch.summarize(part)
    keys, counts = np.unique(drawn, return_counts=True)
    estimate = sketch.estimate(keys)
    assert estimate.covers(counts.astype(float)).all()
    assert 0 < sketch.offset <= drawn.shape[0] / 201
    kept = set(sketch.hashes.tolist())
    assert all(int(key) in kept for key, count in zip(keys, counts, strict=True) if count > sketch.offset)
    best, _ = sketch.top(3)
    assert set(best.tolist()) == set(keys[np.argsort(-counts)[:3]].tolist())


def test_merged_frequent_items_keep_their_bound() -> None:
    parts = [hashes(300, seed)[np.arange(3_000) % 300 % (7 + seed)] for seed in (1, 2)]
    first, second = FrequentItems(5), FrequentItems(5)
    first.summarize(parts[0])
    second.summarize(parts[1])
    first.add(second)
    keys, counts = np.unique(np.concatenate(parts), return_counts=True)
    assert first.hashes.shape[0] <= 5
    assert first.estimate(keys).covers(counts.astype(float)).all()
    assert read_summary(first.to_bytes()).to_bytes() == first.to_bytes()


def test_shapes_and_bytes_that_make_no_sense_are_refused() -> None:
    for lg_k in (6, 22, True):
        with pytest.raises(ConfigError, match="lg_k"):
            HyperLogLog(lg_k)
    with pytest.raises(ConfigError, match="capacity"):
        FrequentItems(0)
    from nile.summaries.envelope import pack

    broken = {"lg_k": 7, "total": 1, "saturated": False}
    with pytest.raises(EnvelopeError, match="registers"):
        HyperLogLog.from_bytes(pack("hll", broken, {"registers": np.full(128, 77, np.uint8)}))


def test_an_offset_beyond_int64_comes_back_from_its_bytes() -> None:
    summary = FrequentItems(capacity=1)
    for _ in range(3):
        summary.summarize(np.array([1, 2], np.uint64), np.array([2**63 - 1, 2**63 - 1]))
    assert summary.offset > 2**63
    assert FrequentItems.from_bytes(summary.to_bytes()).to_bytes() == summary.to_bytes()
