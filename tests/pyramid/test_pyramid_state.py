"""A manager put back from its byte form goes on as the one that never stopped."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_pyramid_manager import Stretch, specs, stream, stretches

from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.manager_state import manager_bytes, read_manager
from nile.pyramid.grid.spec import SummarySpec
from nile.summaries.envelope import pack, unpack
from nile.summaries.errors import EnvelopeError
from nile.summaries.hashing import KeyHasher, KeyTable, hash_keys


def again(manager: SummaryManager) -> SummaryManager:
    return read_manager(unpack(manager_bytes(manager)))


def take(manager: SummaryManager, ts: np.ndarray, keys: pa.Array, begin: int, end: int, step: int) -> None:
    for at in range(begin, end, step):
        manager.ingest(ts[at : min(at + step, end)], keys.slice(at, min(step, end - at)))


@settings(max_examples=60)
@given(
    spec=specs,
    parts=stretches,
    stop=st.integers(0, 4_000),
    release=st.integers(0, 20_000) | st.none(),
    steps=st.tuples(st.integers(1, 700), st.integers(1, 700)),
)
def test_a_restored_manager_goes_on_as_if_it_had_never_stopped(
    spec: SummarySpec, parts: list[Stretch], stop: int, release: int | None, steps: tuple[int, int]
) -> None:
    ts, keys = stream(parts)
    n = ts.shape[0]
    stop = min(stop, n)
    kept, other = SummaryManager(spec), SummaryManager(spec)
    take(kept, ts, keys, 0, stop, steps[0])
    take(other, ts, keys, 0, stop, steps[1])
    if release is not None:
        kept.release(release)
        other.release(release)
    assert manager_bytes(kept) == manager_bytes(other)
    restored = again(kept)
    assert manager_bytes(restored) == manager_bytes(kept)
    assert restored.zones() == kept.zones()
    take(kept, ts, keys, stop, n, steps[0])
    take(restored, ts, keys, stop, n, steps[1])
    assert manager_bytes(restored) == manager_bytes(kept)
    assert restored.zones() == kept.zones()
    assert (restored.changes, restored.zones_closed, restored.forgotten) == (
        kept.changes,
        kept.zones_closed,
        kept.forgotten,
    )
    asked = hash_keys(keys)
    assert np.array_equal(restored.estimate(asked).value, kept.estimate(asked).value)
    assert manager_directory(restored) == manager_directory(kept)


def manager_directory(manager: SummaryManager) -> bytes:
    return manager.directory().to_bytes()


@pytest.mark.parametrize(
    "keys",
    [
        pa.array(["tea", "", None, "tea", "cup" * 50, "\u00e9"]),
        pa.array([1.5, -0.0, float("nan"), None, 0.0, 1.5]),
        pa.array([True, False, None, True, True, False]),
        pa.array([None] * 6, pa.int32()),
        pa.array([1, 2, 3, 4, 5, 2**62], pa.timestamp("ns")),
        pa.array([b"a", b"", b"\xff", None, b"a", b"b"]),
        pa.array(["1.10", "2.20", None, "1.10", "0.00", "9.99"]).cast(pa.decimal128(9, 2)),
    ],
)
def test_keys_of_every_family_come_back_with_their_codes(keys: pa.Array) -> None:
    manager = SummaryManager(SummarySpec(granularity=10))
    manager.ingest(np.arange(6), keys)
    restored = again(manager)
    assert str(restored.keys.values()) == str(manager.keys.values())  # NaN is shown, but never equal
    assert np.array_equal(restored.keys.encode(keys).codes, manager.keys.encode(keys).codes)
    assert np.array_equal(restored.keys.hashes(), manager.keys.hashes())


def test_keyed_hashing_needs_its_secret_back() -> None:
    secret = bytes(range(32))
    manager = SummaryManager(SummarySpec(granularity=10), KeyTable(KeyHasher.keyed(secret)))
    manager.ingest(np.arange(3), pa.array(["a", "b", "a"]))
    data = manager_bytes(manager)
    assert secret not in data
    with pytest.raises(EnvelopeError, match="secret"):
        read_manager(unpack(data))
    restored = read_manager(unpack(data), secret=secret)
    assert manager_bytes(restored) == data


def test_claims_that_do_not_hold_are_refused() -> None:
    manager = SummaryManager(SummarySpec(granularity=10, depth=2))
    manager.ingest(np.arange(600) // 3, pa.array([f"k{i % 7}" for i in range(600)]))
    good = unpack(manager_bytes(manager))
    assert manager_bytes(read_manager(good)) == manager_bytes(manager)
    arrays = dict(good.arrays)
    worse = {
        "code": [arrays["code"] + 1, arrays["code"] - 2, arrays["code"][:-1]],
        "ts": [arrays["ts"][::-1], arrays["ts"].astype(np.int32)],
        "ring": [arrays["ring"] + 1000, arrays["ring"] - 1],
        "appended": [arrays["appended"] * 0, arrays["appended"][:-1]],
        "counters": [arrays["counters"][:-1]],
        "zone": [arrays["zone"][:-1]],
        "keys.0.offsets": [arrays["keys.0.offsets"] + 1, arrays["keys.0.offsets"][::-1]],
        "keys.0.bytes": [np.zeros_like(arrays["keys.0.bytes"])],
    }
    for name, others in worse.items():
        for bad in others:
            with pytest.raises(EnvelopeError):
                read_manager(unpack(pack(good.kind, good.params, {**arrays, name: bad})))
    for name, claim in {
        "known": 3, "known ": 1, "tuples": 599, "keep": 1, "spec": {"granularity": 0}, "schema": 1, "keyed": 1,
        "seed": -1,
    }.items():  # fmt: skip
        params = {**good.params, name.strip(): claim}
        with pytest.raises(EnvelopeError):
            read_manager(unpack(pack(good.kind, params, arrays)))
    with pytest.raises(EnvelopeError, match="kind"):
        read_manager(unpack(pack("other", good.params, arrays)))
