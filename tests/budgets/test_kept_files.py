"""Reading a Parquet file is priced as of what is kept of it, the first time as ever after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nile
from nile.base import unchanged
from nile.operators.strategies.forecast import reading
from nile.operators.strategies.prices import PRICES
from nile.streams.manager import StreamManager, StreamSpec


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as settled at once."""
    for name in ("_COARSE", "_FINE"):
        monkeypatch.setattr(unchanged, name, 0.0)


def written(folder: Path, seed: int, key: Any, n: int = 40_000) -> Path:
    path = folder / f"{seed}.parquet"
    rng = np.random.default_rng(seed)
    ts = pa.array(np.arange(n) * 10**7).cast(pa.timestamp("ns"))
    pq.write_table(pa.table({"ts": ts, "k": key(rng.integers(0, 900, n)), "v": rng.random(n)}), path)
    return path


KEYS = {"numbers": pa.array, "few texts": lambda keys: pa.array([f"page/{key}" for key in keys])}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_a_file_reads_what_is_kept_of_it_while_it_stays_as_it_is(tmp_path: Path, key: Any) -> None:
    path = written(tmp_path, 1, key)
    stream = StreamManager(StreamSpec("a", path, time="ts", key="k"))
    assert stream.reads == "ParquetSource"
    for _ in range(2):
        list(stream.whole())
        assert stream.reads == "Kept"
    for other in ({"carry": ("v",)}, {"lateness": 5}):
        told = StreamManager(StreamSpec("a", path, time="ts", key="k", **other))  # type: ignore[arg-type]
        list(told.whole())
        assert told.reads == "ParquetSource"
    written(tmp_path, 1, key, n=50_000)
    assert stream.reads == "ParquetSource"


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("preference", ["desc", "asc", "weighted"])
def test_answers_within_a_fraction_are_the_same_the_first_time_and_again(
    tmp_path: Path, key: Any, preference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NILE_PRICES", "shipped")
    paths = [written(tmp_path, seed, key) for seed in (1, 2)]
    db = nile.connect()
    for name, path in zip("ab", paths, strict=True):
        db.register(name, path, time="ts")
    query = db.join("a", "b", on="k", window="60 s").prefer(preference).using(costs="machine")
    first, again = query.run(0.1), query.run(0.1)
    assert first.to_arrow().equals(again.to_arrow())
    assert first.strategy == again.strategy
    assert reading(first.joined.streams, PRICES) == PRICES.begin + PRICES.read * sum(map(len, first.joined.streams))
