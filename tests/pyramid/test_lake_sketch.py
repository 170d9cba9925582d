"""What sketches of the lake's files say: bounds that hold, estimates that are near, and bytes that come back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from workload_lake import write_lake

from nile.pyramid.lake import kernels as lake_kernels
from nile.pyramid.lake.lake import LakeStream
from nile.pyramid.lake.sketch import (
    LANES,
    LENGTHS,
    PartSketch,
    asked_products,
    keep_sketch,
    kept_sketch,
    lane_of,
    products,
    rare_products,
    sketch_part,
)
from nile.summaries.errors import EnvelopeError
from nile.summaries.hashing import hash_keys

HOUR = 3_600 * 10**9


def one_part(root: Path, name: str, seed: int, tuples: int, keys: int) -> tuple[LakeStream, PartSketch]:
    rng = np.random.default_rng(seed)
    ts = np.sort(rng.integers(0, HOUR // 2, tuples))
    items = pa.array(rng.zipf(1.2, tuples) % keys, mask=rng.random(tuples) < 0.05)
    stream = write_lake(root, name, ts, {"item": items}, range_s=86_400)
    (part,) = stream.parts
    return stream, sketch_part(stream.file(part), "item")


def columns(stream: LakeStream) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(items, hashes, times) of the tuples with a key."""
    (table,) = stream.read(["item", "_ts"])
    table = table.filter(pa.compute.is_valid(table["item"]))
    return table["item"].to_numpy(), hash_keys(table["item"].combine_chunks()), table["_ts"].to_numpy()


@pytest.mark.parametrize("keys", [3, 300, 20_000])
def test_products_bound_the_pairs_of_every_lane_and_estimate_their_sum(tmp_path: Path, keys: int) -> None:
    left, one = one_part(tmp_path, "a", 1, 20_000, keys)
    right, other = one_part(tmp_path, "b", 2, 7_000, max(2, keys // 2))
    exact, rare = np.zeros(LANES), 0.0
    counts = [dict(zip(*np.unique(columns(each)[0], return_counts=True), strict=True)) for each in (left, right)]
    for key in counts[0].keys() & counts[1].keys():
        lane = int(lane_of(hash_keys(pa.array([key])))[0])
        exact[lane] += counts[0][key] * counts[1][key]
        rare += counts[0][key] * counts[1][key] * (counts[0][key] + counts[1][key] <= 4)
    few, most = products(one, other)
    assert (most >= exact).all()
    assert (few <= most).all()
    assert few.sum() == pytest.approx(exact.sum(), rel=0.3)
    told = rare_products(one, other, 4, 1.0).sum()
    assert told <= exact.sum()
    if rare:
        assert told == pytest.approx(rare, rel=0.7)
    assert rare_products(one, other, 1, 1.0).sum() == 0.0


def test_the_tuples_of_asked_keys_are_bounded(tmp_path: Path) -> None:
    stream, sketch = one_part(tmp_path, "a", 3, 20_000, 500)
    items, _, _ = columns(stream)
    asked = pa.array([1, 2, 499, 100_000])
    few, most = asked_products([sketch], hash_keys(asked))
    for key in asked.to_pylist():
        lane = int(lane_of(hash_keys(pa.array([key])))[0])
        assert most[lane] >= (items == key).sum()
    assert few[int(lane_of(hash_keys(pa.array([1])))[0])] == pytest.approx((items == 1).sum(), rel=0.3)
    assert asked_products([sketch], hash_keys(pa.array([100_000])))[0].sum() <= 3


def test_peaks_are_the_most_tuples_of_any_interval(tmp_path: Path) -> None:
    stream, sketch = one_part(tmp_path, "a", 4, 3_000, 40)
    _, hashes, ts = columns(stream)
    lanes = lane_of(hashes)
    for lane in (lane for lane in range(1, LANES) if (lanes == lane).any()):
        mine = np.sort(ts[lanes == lane])
        for at, length in list(enumerate(LENGTHS.tolist()))[::4]:
            most = max(int(((mine >= t) & (mine <= t + length)).sum()) for t in mine.tolist())
            assert sketch.peaks[lane, at] == most
            assert (sketch.within(length) == sketch.peaks[:, at]).all()
    assert (sketch.within(None) == sketch.rows).all()
    assert sketch.rows.sum() == 3_000


def test_the_kernel_counts_as_five_lines_of_python_do() -> None:
    rng = np.random.default_rng(5)
    edges = np.array([0, 40, 40, 100])
    ts = np.concatenate([np.sort(rng.integers(0, 90, n)) for n in (40, 0, 60)])
    lengths = np.array([0, 1, 7, 1_000])
    out = np.zeros((3, 4), np.int64)
    lake_kernels.peaks(ts, edges, lengths, out)
    for lane in range(3):
        mine = ts[edges[lane] : edges[lane + 1]]
        slow = [max([int(((mine >= t) & (mine <= t + n)).sum()) for t in mine], default=0) for n in lengths]
        assert out[lane].tolist() == slow


def test_a_sketch_comes_back_as_it_was_and_not_for_another_file(tmp_path: Path) -> None:
    stream, sketch = one_part(tmp_path, "a", 6, 2_000, 50)
    _, other = one_part(tmp_path, "b", 7, 2_000, 50)
    (part,) = stream.parts
    assert kept_sketch(stream, part) is None
    assert keep_sketch(stream, part, sketch)
    again = kept_sketch(stream, part)
    assert again is not None
    assert again.packed(part, "item") == sketch.packed(part, "item")
    data = sketch.packed(part, "item")
    with pytest.raises(EnvelopeError):
        PartSketch.unpacked(data, part, "price", where="here")
    with pytest.raises(EnvelopeError):
        PartSketch.unpacked(data[:-1], part, "item", where="here")
    assert other.packed(part, "item") != data
    file = next((stream.path / "_sketches").iterdir())
    file.write_bytes(data[:100])
    assert kept_sketch(stream, part) is None
