"""The key directory is exact, and a linear summary."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nile.pyramid.grid.directory import KeyDirectory
from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.spec import SummarySpec
from nile.summaries.catalogue import read_summary
from nile.summaries.errors import ConfigError, EnvelopeError, SummaryMismatch
from nile.summaries.exact import ExactCounter
from nile.summaries.hashing import KeyTable, hash_keys

Array = np.ndarray[Any, Any]
Events = list[tuple[int, str | None]]

events = st.lists(st.tuples(st.integers(0, 50), st.sampled_from(["a", "b", "c", "rare", None])), max_size=200)


def manager_of(stream: Events, keys: KeyTable | None = None) -> SummaryManager:
    manager = SummaryManager(SummarySpec(granularity=20), keys)
    stream = sorted(stream, key=lambda event: event[0])
    manager.ingest(np.array([ts for ts, _ in stream], np.int64), pa.array([key for _, key in stream], pa.string()))
    return manager


def counts_in(directory: KeyDirectory) -> dict[str, int]:
    names = ["a", "b", "c", "rare"]
    estimate = directory.estimate(hash_keys(pa.array(names)))
    assert estimate.certified
    assert estimate.confidence == 1.0
    assert np.array_equal(estimate.low, estimate.high)
    return {name: int(n) for name, n in zip(names, np.asarray(estimate.value), strict=True) if n}


@settings(max_examples=40)
@given(stream=events, since=st.none() | st.integers(-5, 60), released=st.integers(-5, 60))
def test_counts_are_those_of_the_tuples_held_since_then(stream: Events, since: int | None, released: int) -> None:
    manager = manager_of(stream)
    manager.release(released)
    oldest = max(released, -1 if since is None else since)
    expected = Counter(key for ts, key in stream if key is not None and ts >= oldest)
    directory = manager.directory(since)
    assert counts_in(directory) == expected
    assert directory.total == expected.total()
    assert directory.distinct == len(expected)
    assert directory.nbytes == 16 * len(expected)
    assert directory.linear
    assert directory.confidence() == 1.0


@settings(max_examples=25)
@given(a=events, b=events)
def test_directories_add_and_subtract(a: Events, b: Events) -> None:
    keys = KeyTable()
    left, right = manager_of(a, keys).directory(), manager_of(b, keys).directory()
    before = left.to_bytes()
    left.add(right)
    assert counts_in(left) == Counter(key for _, key in [*a, *b] if key is not None)
    assert left.to_bytes() == manager_of([*a, *b], keys).directory().to_bytes()
    left.subtract(right)
    assert left.to_bytes() == before
    left.subtract(left)
    assert left.to_bytes() == KeyDirectory().to_bytes()


@settings(max_examples=15)
@given(stream=events)
def test_the_byte_form_comes_back_equal(stream: Events) -> None:
    directory = manager_of(stream).directory()
    again = KeyDirectory.from_bytes(directory.to_bytes())
    assert again.to_bytes() == directory.to_bytes()
    assert counts_in(again) == counts_in(directory)


def test_the_older_part_of_a_directory_is_the_whole_less_the_newer() -> None:
    manager = manager_of([(ts, "abc"[ts % 3]) for ts in range(60)])
    older = manager.directory()
    older.subtract(manager.directory(since=30))
    assert counts_in(older) == {"a": 10, "b": 10, "c": 10}


@pytest.mark.parametrize(("since", "total"), [(-(1 << 70), 3), (1 << 70, 0), (49, 1), (50, 0)])
def test_any_since_is_fine(since: int, total: int) -> None:
    manager = manager_of([(1, "a"), (2, "a"), (49, "b")])
    assert manager.directory(since).total == total


def test_a_directory_is_another_kind_than_an_exact_counter() -> None:
    directory = manager_of([(1, "a")]).directory()
    with pytest.raises(SummaryMismatch, match=r"add: needed another KeyDirectory\(\); got ExactCounter"):
        directory.add(ExactCounter())
    with pytest.raises(EnvelopeError, match="got 'directory'"):
        read_summary(directory.to_bytes())


def test_hashes_of_a_smaller_key_table_are_refused() -> None:
    manager = manager_of([(1, "a"), (2, "b")])
    with pytest.raises(ConfigError, match="needed the hash of each of 2 keys; got 1; hand on"):
        KeyDirectory.of(manager.store, manager.keys.hashes()[:1])
