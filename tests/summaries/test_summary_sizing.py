"""CREATE SUMMARY ... WITH ERROR | WITH MEMORY: how wide the sketch becomes, and what its counts are then worth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import nile
from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.sizing import concentration_of, for_error, for_memory, outgrown
from nile.pyramid.grid.spec import SummarySpec
from nile.summaries.hashing import hash_keys

SUMMARY = "CREATE SUMMARY m ON s (item) WITH GRANULARITY '10 min' AND COLLAPSE (4, 2) WITH "
LUCK = 1.6
"""How much the error of a few thousand keys may exceed its expectation."""


def items(kind: str, n: int = 20_000, seed: int = 1) -> Any:
    draw = np.random.default_rng(seed)
    if kind == "uniform":
        return draw.integers(0, 5_000, n)
    if kind == "one key":
        return np.zeros(n, np.int64)
    if kind == "drifting":
        return draw.zipf(1.5, n) % 1_000 + np.arange(n) // 20
    return draw.zipf(float(kind), n) % 10_000


KINDS = ["uniform", "one key", "drifting", "1.1", "1.5", "2.0"]


def database(kind: str, *, live: bool, error: str) -> nile.Database:
    db = nile.connect()
    table = pa.table({"ts": np.arange(20_000) * 1.0, "item": items(kind)})
    if live:
        db.stream("s", table.schema, time="ts")
        db.sql(SUMMARY + f"ERROR {error}")
        for part in table.to_batches(max_chunksize=1_500):
            db.push("s", part)
    else:
        db.register("s", table, time="ts")
        db.sql(SUMMARY + f"ERROR {error}")
    return db


def off(manager: SummaryManager, keys: Any) -> float:
    """The root mean square error of a row's counts, over keys that came, as a share of the tuples."""
    distinct, counts = np.unique(keys, return_counts=True)
    hashes = hash_keys(pa.array(distinct), manager.keys.hasher)
    rows = np.sum([manager.index(g).estimate(hashes, -(1 << 63))[0] for g in (1, 2)], axis=0)
    return float(np.sqrt(((rows - counts) ** 2).mean())) / keys.shape[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize(("text", "error"), [("2 %", 0.02), ("0.005", 0.005)])
def test_counts_are_as_near_as_was_asked(kind: str, live: bool, text: str, error: float) -> None:
    db = database(kind, live=live, error=text)
    manager = db.summary("m")
    assert manager.error <= error * 20_000
    assert off(manager, items(kind)) <= LUCK * error
    assert manager.spec.width <= 4 / error**2


def test_the_width_follows_the_data() -> None:
    widths = {kind: database(kind, live=False, error="1 %").summary("m").spec.width for kind in KINDS}
    assert widths["uniform"] == 16
    assert widths["one key"] == 16_384  # nothing can be more concentrated
    assert widths["uniform"] < widths["1.1"] <= widths["1.5"] <= widths["2.0"] <= widths["one key"]


def test_a_live_summary_is_widened_when_its_data_no_longer_fit() -> None:
    db = nile.connect()
    db.stream("s", [("ts", pa.float64()), ("item", pa.int64())], time="ts")
    db.sql(SUMMARY + "ERROR 1 %")
    widths = []
    for part in range(8):
        keys = np.arange(2_000) if part < 4 else np.full(2_000, 7)
        db.push("s", {"ts": np.arange(2_000) + 2_000.0 * part, "item": keys})
        manager = db.summary("m")
        widths.append(manager.spec.width)
        assert manager.store.tuples == 2_000 * (part + 1)
        assert manager.error <= 0.01 * manager.store.tuples
    assert widths[0] == widths[3] < widths[-1]
    assert widths == sorted(widths)
    (row,) = db.sql("SHOW SUMMARIES").to_arrow().to_pylist()
    assert row["sketch"] == f"3 x {widths[-1]}"


def test_a_store_brings_back_the_width_and_goes_on_with_it(tmp_path: Any) -> None:
    with nile.connect(tmp_path / "store") as db:
        db.stream("s", [("ts", pa.float64()), ("item", pa.int64())], time="ts")
        db.sql(SUMMARY + "ERROR 1 %")
        db.push("s", {"ts": np.arange(4_000) * 1.0, "item": items("1.5", 4_000)})
        width = db.summary("m").spec.width
        counters = db.summary("m").store.side.counters.copy()
    with nile.connect(tmp_path / "store") as db:
        assert db.summary("m").spec.width == width
        assert np.array_equal(db.summary("m").store.side.counters, counters)
        db.push("s", {"ts": np.arange(4_000, 8_000) * 1.0, "item": np.zeros(4_000, np.int64)})
        assert db.summary("m").spec.width > width
        assert db.summary("m").store.tuples == 8_000


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize(("text", "bytes_"), [("'4 MB'", 4_000_000), ("'1 MiB'", 1 << 20), ("200000", 200_000)])
def test_a_summary_takes_the_memory_it_may(live: bool, text: str, bytes_: int) -> None:
    db = nile.connect()
    table = pa.table({"ts": np.arange(5_000) * 1.0, "item": items("1.5", 5_000)})
    if live:
        db.stream("s", table.schema, time="ts")
        db.push("s", table)
    else:
        db.register("s", table, time="ts")
    db.sql(SUMMARY + f"MEMORY {text}")
    counters = db.summary("m").store.side.counters.nbytes
    assert bytes_ / 2 < counters <= bytes_
    told = dict(db.sql("DESCRIBE m").fetchall())
    assert told["memory"] == str(bytes_)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ERROR 0", "needed an error above 0 and below 1, such as 0.02 or 2 %; got 0"),
        ("ERROR 100 %", "needed an error above 0 and below 1, such as 0.02 or 2 %; got 1"),
        ("ERROR 2 % USING columns = 64", "which choose the columns, or columns; got both"),
        ("ERROR 0.001 %", "needed 1,048,576 columns at most; got 1e-05"),
        ("ERROR 0.05 %", "at most 2 GiB of counters"),
        ("MEMORY '1 kB'", "needed at least 29,184 bytes"),
        ("MEMORY 'much'", "needed a number of bytes, or text like '256MB'"),
        ("WIDTH 7", "needed the end|needed"),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_asked_for(text: str, said: str) -> None:
    db = nile.connect()
    db.register("s", pa.table({"ts": [1.0], "item": [1]}), time="ts")
    with pytest.raises((nile.SqlError, nile.ConfigError), match=said):
        db.sql(SUMMARY + text)


@settings(max_examples=200, deadline=None)
@given(error=some.floats(0.002, 0.99), concentration=some.floats(0.0, 1.0), buckets=some.sampled_from([1, 4, 16]))
def test_the_fewest_columns_that_do(error: float, concentration: float, buckets: int) -> None:
    spec = SummarySpec(600, 2, 1, buckets=buckets, rows=1, max_zones=2)
    sized = for_error(spec, error, concentration)
    assert sized.width >= concentration / error**2
    assert sized.columns == 1 or sized.width / 2 < concentration / error**2


@settings(max_examples=200, deadline=None)
@given(memory=some.integers(200_000, 1 << 30), rows=some.integers(1, 5))
def test_the_most_columns_that_fit(memory: int, rows: int) -> None:
    sized = for_memory(SummarySpec(600, 2, 2, rows=rows), memory)
    assert 8 * sized.counters <= memory
    assert 16 * sized.counters > memory or sized.columns == 1 << 20


def test_data_that_fit_are_left_alone() -> None:
    manager = SummaryManager(SummarySpec(600, 2, 1, columns=32))
    assert outgrown(manager, 0.01) is None
    manager.ingest(np.arange(1_000), pa.array(np.arange(1_000)))
    assert outgrown(manager, 0.01) is None
    assert outgrown(manager, 1e-6) is None  # nothing so wide could be kept
    assert concentration_of(np.array([-1, -1], np.int32)) == 0.0
    assert concentration_of(np.array([0, 1, 0, 1, -1], np.int32)) == 0.5
