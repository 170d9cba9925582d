"""Kinds of experiments measure what they say, on synthetic streams and on a file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nile.experiments.atlas.change_kind import CHANGE, ChangeOptions
from nile.experiments.atlas.join_kind import JOIN, JoinOptions
from nile.experiments.atlas.kinds import Data
from nile.experiments.atlas.selection_kind import SELECTION, SelectionOptions
from nile.experiments.atlas.sketch_kind import SKETCH, SketchOptions
from nile.streams.synthetic import SyntheticRetail
from nile.summaries.errors import SourceError


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Data:
    file = tmp_path_factory.mktemp("sales") / "sales.parquet"
    SyntheticRetail(seed=3, tuples=3_000, items=60, vstores=2).write_parquet(file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return Data(str(file), digest, "vstore = 0", "vstore = 1", "item_id", "ts", "price", "vstore")


def test_a_sketch_with_room_for_all_keys_makes_no_error_and_a_small_one_does(sales: Data) -> None:
    for data in (None, sales):
        options = SketchOptions(data="real" if data else "synthetic", tuples=3_000, bytes=1 << 24, rows=5)
        counted = SKETCH.prepare(options, 0, data)
        assert counted.counts.sum() == 3_000
        assert SKETCH.measure(counted, options, 0) == {"error_heavy": 0.0, "error_all": 0.0}
        small = options.model_copy(update={"bytes": 1_024, "sketch": "countmin"})
        assert SKETCH.measure(counted, small, 0)["error_all"] > 0.0  # type: ignore[operator]


def test_a_change_of_all_items_is_seen_and_none_where_nothing_moves() -> None:
    options = ChangeOptions(stretch=4_096, changes=2, share=1.0)
    seen = CHANGE.measure(CHANGE.prepare(options, 0, None), options, 0)
    assert seen["found"] == 1.0
    assert 0.0 < seen["delay"] <= 1_024.0  # type: ignore[operator]
    still = options.model_copy(update={"share": 0.0})
    assert CHANGE.measure(CHANGE.prepare(still, 0, None), still, 0)["found"] is None


def test_a_faster_stream_leaves_the_same_machine_a_smaller_share() -> None:
    shares = []
    for ms in (25.0, 100.0):
        options = JoinOptions(tuples=1_000, interarrival=ms, capacity=0.5, method="hash-drop")
        shares.append(JOIN.measure(JOIN.prepare(options, 0, None), options, 0)["budget_spent"])
    assert 0.0 < shares[0] < shares[1] / 4  # type: ignore[operator]
    assert shares[1] <= 0.5  # type: ignore[operator]


def test_real_streams_are_cut_to_as_many_tuples_of_both_together(sales: Data) -> None:
    options = JoinOptions(data="real", tuples=500, window=3_600.0, budget=1.0, guide="directory")
    joined = JOIN.prepare(options, 0, sales).joined
    assert 900 <= len(joined.left) + len(joined.right) <= 1_000
    assert JOIN.measure(JOIN.prepare(options, 0, sales), options, 0)["recall"] == 1.0


def test_naive_selections_find_the_share_that_they_can_pay_on_a_file_too(sales: Data, tmp_path: Path) -> None:
    options = SelectionOptions(data="real", tuples=2_000, method="naive", capacity=0.5, queries=20, load=20)
    found = SELECTION.measure(SELECTION.prepare(options, 0, sales), options, 0)
    assert found["recall"] == pytest.approx(0.5, abs=0.05)
    file = tmp_path / "words.parquet"
    pq.write_table(pa.table({"ts": [1, 2], "price": ["a", "b"]}), file)
    words = Data(str(file), "", "", "", "item_id", "ts", "price", "vstore")
    with pytest.raises(SourceError, match="--value price: needed a column of numbers"):
        SELECTION.prepare(options, 0, words)
