"""Every summary class keeps its stated error over many kinds of streams, and its bytes from version to version."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nile.streams.synthetic import SyntheticRetail
from nile.summaries.catalogue import CATALOGUE, make_summary, read_summary
from nile.summaries.hashing import hash_keys
from nile.summaries.ready import HyperLogLog

Array = np.ndarray[Any, Any]
N = 20_000
SPARE = 0.02
"""How much more often than stated an interval may miss, over the few hundred keys that are asked for."""


def zipf(power: float) -> Callable[[np.random.Generator], Any]:
    def drawn(draw: np.random.Generator) -> Any:
        weight = np.arange(1, 3_001) ** -power
        return draw.choice(3_000, N, p=weight / weight.sum())

    return drawn


def drifting(draw: np.random.Generator) -> Any:
    return draw.zipf(1.5, N) % 500 + np.arange(N) // 50


def retail(draw: np.random.Generator) -> Any:
    del draw
    return pa.Table.from_batches(list(SyntheticRetail(seed=2, tuples=N).batches())).column("item_id").combine_chunks()


STREAMS: dict[str, Callable[[np.random.Generator], Any]] = {
    "zipf 0.5": zipf(0.5),
    "zipf 1": zipf(1.0),
    "zipf 1.5": zipf(1.5),
    "zipf 2": zipf(2.0),
    "uniform": lambda draw: draw.integers(0, 2_000, N),
    "drifting": drifting,
    "powers of two apart": lambda draw: draw.integers(0, 2_000, N) << 40,
    "one against many": lambda draw: np.where(draw.random(N) < 0.5, 7, np.arange(N) * 4096),
    "retail": retail,
}


@pytest.mark.parametrize("name", sorted(CATALOGUE))
@pytest.mark.parametrize("stream", sorted(STREAMS))
def test_the_stated_error_holds(name: str, stream: str) -> None:
    draw = np.random.default_rng(11)
    column = STREAMS[stream](draw)
    hashes = hash_keys(column if isinstance(column, pa.Array) else pa.array(column))
    keys, counts = np.unique(hashes, return_counts=True)
    asked = draw.choice(keys.shape[0], min(800, keys.shape[0]), replace=False)
    summary = make_summary(name)
    summary.summarize(hashes)
    told = summary.estimate(keys[asked])
    missed = (told.low > counts[asked]) | (told.high < counts[asked])
    assert missed.mean() <= (0.0 if told.certified else 1 - told.confidence + SPARE)
    if isinstance(summary, HyperLogLog):
        distinct = summary.distinct()
        assert distinct.low <= keys.shape[0] <= distinct.high


GOLDEN = {
    "countsketch": "7130cbe2886905c9",
    "countmin": "5e2d039e3050a40a",
    "exact": "d42f928b90dec275",
    "frequent": "b58aa78ef05ea031",
    "histogram": "ef0f69fbcfb4ca13",
    "hll": "62803ecebf5cf0e6",
    "kll": "4f4fc0f93c723122",
    "reservoir": "5cfa22eaae1cfc35",
    "wavelet": "e74c0cb05e3e6a75",
}
"""The first sixteen digits of the SHA-256 of what a class makes of a fixed stream; written by no one since."""


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_bytes_are_as_they_were_and_are_read(name: str) -> None:
    summary = make_summary(name)
    keys = (np.arange(500, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(0xABCDEF)
    summary.summarize(np.repeat(keys, np.arange(500) % 7))
    raw = summary.to_bytes()
    assert hashlib.sha256(raw).hexdigest()[:16] == GOLDEN[name]
    assert read_summary(raw).to_bytes() == raw
