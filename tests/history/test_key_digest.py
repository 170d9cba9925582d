"""Digests of key indices: certain bounds, the kernel against Python, what absent keys are ruled out by."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nile.pyramid.history.history import History
from nile.pyramid.history.key_digest import ALONE, BITS, CLASSES, Digesting, KeyDigest, StoredSummary
from nile.pyramid.history.pages import PageFile, PageWriter
from nile.pyramid.lake.key_sketch import IndexSketch
from nile.summaries.errors import EnvelopeError, StoreCorrupt


def digest_of(keys: list[tuple[int, int]]) -> tuple[KeyDigest, Counter[int]]:
    """The digest of entries (hash, tuples), and the tuples of each hash."""
    keys = sorted(keys)
    exact: Counter[int] = Counter()
    for key, count in keys:
        exact[key] += count
    return KeyDigest.of(np.array([h for h, _ in keys], np.uint64), np.array([c for _, c in keys], np.int64)), exact


def bounds_twin(digest: KeyDigest, key: int) -> tuple[int, int]:
    """(estimate, upper) of one key, as the kernel tells them."""
    first = (digest.edges.shape[0] - 1).bit_length() - 1
    span, piece = key >> (64 - first), (key << first) % (1 << 64) >> (64 - BITS)
    here = digest.codes[digest.edges[span] : digest.edges[span + 1]].tolist()
    levels = [code % CLASSES for code in here if code // CLASSES == piece]
    return sum(digest.about[levels].tolist()), sum(digest.most[levels].tolist())


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(1, 1 << 31)), max_size=300))
def test_the_bound_of_a_digest_is_certain(keys: list[tuple[int, int]]) -> None:
    digest, exact = digest_of([*keys, *keys[:3]])  # values that share a hash are an entry each
    asked = np.array(sorted(exact), np.uint64)
    estimate, upper = digest.bounds(asked)
    assert (upper >= [exact[key] for key in asked.tolist()]).all()
    assert ((estimate >= 0) & (estimate <= upper)).all()
    assert digest.codes.shape[0] == len(keys) + len(keys[:3])


@pytest.mark.parametrize("keys", [0, 1, 15, 31, 32, 33, 5_000])
def test_the_kernel_of_digests_is_its_python_twin(keys: int) -> None:
    chance = np.random.default_rng(keys)
    hashes = np.sort(chance.integers(0, 2**64, keys, dtype=np.uint64))
    digest = KeyDigest.of(hashes, chance.geometric(0.02, keys))
    asked = np.concatenate(
        [hashes, chance.integers(0, 2**64, 500, dtype=np.uint64), [np.uint64(0), np.uint64(2**64 - 1)]]
    )
    estimate, upper = digest.bounds(asked)
    told = list(zip(estimate.tolist(), upper.tolist(), strict=True))
    assert told == [bounds_twin(digest, key) for key in asked.tolist()]


def test_counts_up_to_four_are_told_exactly_and_others_within_a_ratio() -> None:
    chance = np.random.default_rng(1)
    hashes = np.unique(chance.integers(0, 2**64, 40_000, dtype=np.uint64))
    counts = np.minimum(chance.zipf(1.3, hashes.shape[0]), 1 << 20)
    estimate, upper = KeyDigest.of(hashes, counts).bounds(hashes)
    alone = counts <= ALONE
    for told in (estimate, upper):  # but for those that share their piece of a hash with another key
        assert np.mean(told[alone] == counts[alone]) > 0.98
    assert np.median(upper / counts) < 1.3
    assert abs(estimate.sum() / counts.sum() - 1) < 0.03


@pytest.mark.parametrize("keys", [1_000, 1_024, 40_000, 131_071])
def test_absent_keys_are_ruled_out_but_for_one_in_sixty_four(keys: int) -> None:
    chance = np.random.default_rng(3)
    digest = KeyDigest.of(np.sort(chance.integers(0, 2**64, keys, dtype=np.uint64)), np.ones(keys, np.int64))
    absent = chance.integers(0, 2**64, 400_000, dtype=np.uint64)
    possible = np.mean(digest.bounds(absent)[1] > 0)
    assert possible < 1 / 64 + 4 * np.sqrt(1 / 64 / absent.shape[0])
    assert digest.nbytes < 2.3 * keys + 600


def test_a_digest_made_in_parts_is_the_same() -> None:
    chance = np.random.default_rng(4)
    hashes, counts = np.sort(chance.integers(0, 2**64, 3_000, dtype=np.uint64)), chance.geometric(0.01, 3_000)
    digesting = Digesting(3_000)
    for part in np.array_split(np.arange(3_000), 7):
        digesting.add(hashes[part], counts[part])
    made, whole = digesting.digest(), KeyDigest.of(hashes, counts)
    assert made.page() == whole.page()
    assert (made.most == whole.most).all()
    assert (made.about == whole.about).all()


def stored(digest: KeyDigest, **other: int) -> StoredSummary:
    """A digest read back from a file whose footer says something else of it."""
    writer = PageWriter()
    body = [writer.start(), *writer.page(digest.page())]
    told, levels = digest.told(0)
    levels["about"] = levels["about"] + other.pop("above", 0)
    data = b"".join(bytes(piece) for piece in [*body, writer.finish("x", {**told, **other}, levels)])
    return StoredSummary(PageFile(memoryview(data), "x", "file"), digest.codes.shape[0], "counters")


def test_a_stored_digest_is_the_one_written_and_a_forged_one_is_refused() -> None:
    chance = np.random.default_rng(5)
    hashes = np.sort(chance.integers(0, 2**64, 900, dtype=np.uint64))
    digest = KeyDigest.of(hashes, chance.geometric(0.1, 900))
    again = stored(digest).read()
    assert isinstance(again, KeyDigest)
    assert again.page() == digest.page()
    for mine, theirs in zip(again.bounds(hashes), digest.bounds(hashes), strict=True):
        assert (mine == theirs).all()
    for spans in (2 * digest.edges.shape[0] - 2, 1):
        with pytest.raises(StoreCorrupt, match="page 0"):
            stored(digest, spans=spans).read()
    with pytest.raises(EnvelopeError, match="power of two"):
        stored(digest, spans=3)
    with pytest.raises(EnvelopeError, match="above its bound"):
        stored(digest, above=1 << 40)
    digest.edges[3], digest.edges[4] = 1_000_000, 0
    with pytest.raises(StoreCorrupt, match="digest: needed spans that rise"):
        stored(digest).read()


@pytest.mark.parametrize("where", ["counters", 1])
def test_the_sketch_of_an_older_file_is_read_in_its_place(where: str | int) -> None:
    chance = np.random.default_rng(6)
    hashes = np.sort(chance.integers(0, 2**64, 200, dtype=np.uint64))
    sketch = IndexSketch.of(hashes, chance.geometric(0.1, 200), 512)
    writer = PageWriter()
    body = [writer.start(), *writer.page(b"other"), *writer.page(sketch.codes)]
    data = b"".join(bytes(piece) for piece in [*body, writer.finish("x", {"counters": 1, "cells": 512}, {})])
    again = StoredSummary(PageFile(memoryview(data), "x", "file"), 200, where).read()
    for mine, theirs in zip(again.bounds(hashes), sketch.bounds(hashes), strict=True):
        assert (mine == theirs).all()


def test_an_index_of_no_keys_has_a_digest() -> None:
    history = History("s", pa.schema([("key", pa.string())]), indexed=["key"])
    history.append(np.arange(3), pa.record_batch({"key": pa.nulls(3, pa.string())}))
    (index,) = history.indices("key")
    assert [bound.tolist() for bound in index.bounds(np.array([0, 7, 2**64 - 1], np.uint64))] == [[0, 0, 0]] * 2
