"""Kernels are loaded before any test asks for less time than that takes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.preferences.budget import Budget


@pytest.fixture(scope="session", autouse=True)
def _loaded() -> None:
    """What answers within time run, over as small streams."""
    db, ample, n = nile.connect(), Budget(seconds=3_600.0), 3_000
    for seed, name in enumerate("abc"):
        rng = np.random.default_rng(seed)
        given = {"t": np.arange(n) * 1.0, "k": rng.integers(0, 300, n), "v": rng.random(n)}
        db.register(name, pa.table(given), time="t")
    for streams in ("ab", "abc"):
        for where in (None, "a.v < b.v"):
            query = db.join(*streams, on="k", window="60 s", where=where).using(costs="machine")
            for preference in ("desc", "asc", "weighted"):
                query.prefer(preference).run(ample).to_arrow()
            query.prefer("weighted").aggregate({"n": "count(*)", "s": "sum(b.v)"}, by="a.k").run(ample)
    for way in ("counts", "keys"):
        query = db.join("a", "b", on="k", window="60 s").using(costs="machine", strategy=way)
        for preference in ("desc", "weighted"):
            query.prefer(preference).run(ample).to_arrow()
