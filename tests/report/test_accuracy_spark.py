"""The exact pairs of a report are the same whoever computes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.engine.spark_truth import exact_pairs_by_spark
from nile.report.truth import exact_pairs


def sorted_rows(pairs: Any) -> list[tuple[int, ...]]:
    names = ("left", "right", "key_rank", "age", "window_count", "frequency")
    return sorted(zip(*(getattr(pairs, name).tolist() for name in names), strict=True))


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_report_by_spark_is_the_report_of_this_process() -> None:
    chance = np.random.Generator(np.random.PCG64(8))
    db = nile.connect()
    for name in ("l", "r"):
        items = pa.array([f"i{k:02d}" for k in np.minimum(chance.zipf(1.5, 200), 30)]).dictionary_encode()
        db.register(name, pa.table({"ts": np.cumsum(chance.random(200)), "item": items}), time="ts")
    answer = db.join("l", "r", on="item", window="9 s").prefer("weighted").run(0.4)
    assert sorted_rows(exact_pairs_by_spark(answer.joined)) == sorted_rows(exact_pairs(answer.joined))
    here = answer.report(budgets=[0.4], seeds=2)
    there = answer.report(budgets=[0.4], seeds=2, engine="spark")
    assert there.record() == here.record()
