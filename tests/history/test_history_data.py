"""The rows of the history benchmark: the same in the store and in Parquet, with the outliers that it asks for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nile.experiments.benchmarks.history_data import STREAMS, histories, make, pieces


def test_pieces_follow_each_other_and_rare_items_are_rare() -> None:
    tables = list(pieces(60_000, seed=4))
    table = pa.concat_tables(tables)
    assert len(table) == 60_000
    assert table["seq"].to_pylist() == list(range(60_000))
    ts = table["ts"].cast(pa.int64()).to_numpy()
    assert (np.diff(ts) >= 0).all()
    sold = Counter(table["item_id"].to_pylist())
    rare = [item for item in sold if "-R" in item]
    assert len(rare) == 60_000 // 125
    assert all(sold[item] <= 2 for item in rare)
    hour = table.filter(pc.greater(table["ts"], pa.scalar(int(ts[-1]) - 3_600_000_000, pa.timestamp("us"))))
    both = [set(hour.filter(pc.equal(hour["vstore"], n))["item_id"].to_pylist()) for n in (0, 1)]
    assert len([item for item in both[0] & both[1] if "-R" in item]) >= 100


def test_the_store_and_the_parquet_files_have_the_same_rows(tmp_path: Path) -> None:
    made = make(tmp_path, 20_000, seed=2, checkpoint=5_000)
    assert (made.rows, len(made.checkpoints)) == (20_000, 1)
    held, directory = histories(tmp_path)
    assert sum(history.tuples for history in held.values()) == 20_000
    for name in STREAMS:
        peer = pq.read_table(tmp_path / "parquet" / f"{name}.parquet")
        mine = pa.Table.from_batches([batch for _, batch in held[name].batches()])
        assert mine.equals(peer)
        assert sum(index.keyed for index in held[name].indices("item_id")) == len(peer)
    directory.close()
