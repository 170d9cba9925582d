"""Arrays in pieces: what a checkpoint writes of them is what is new, and they come back whole whatever came between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.durable.pieces import LEAST, Pieces, cuts
from nile.pyramid.disk.directory import StoreDirectory
from nile.summaries.envelope import Envelope
from nile.summaries.errors import EnvelopeError

Array = np.ndarray[Any, Any]


def arrays_of(random: np.random.Generator, kind: int, n: int) -> Array:
    made: list[Array] = [
        random.integers(0, 1 << 60, n),
        random.integers(0, 2, n),
        random.integers(97, 123, n).astype(np.uint8),
        random.random(n).astype(np.float32),
        np.zeros(n, np.int16),
        random.random(n) < 0.5,
    ]
    return made[kind]


@pytest.mark.parametrize("kind", range(6))
def test_pieces_cover_an_array_and_are_those_of_the_rest_when_its_beginning_goes(kind: int) -> None:
    random = np.random.default_rng(kind)
    array = arrays_of(random, kind, 200_000)
    found = cuts(array)
    assert [first for first, _ in found] == [0, *(end for _, end in found[:-1])]
    assert found[-1][1] == array.nbytes
    raw = array.view(np.uint8).tobytes()
    known = {raw[first:end] for first, end in found}
    moved = np.concatenate([array[1_777:], arrays_of(random, kind, 99)])
    rest = moved.view(np.uint8).tobytes()
    new = sum(end - first for first, end in cuts(moved) if rest[first:end] not in known)
    assert new <= 5 * 16_384


def staged(directory: StoreDirectory, pieces: Pieces, held: list[dict[str, Array]], kept: dict[str, Any]) -> int:
    """Commit these arrays; bytes written."""
    before, made = set(directory.files()), []
    with pieces.writing() as writing:
        for number, arrays in enumerate(held):
            envelope = writing.envelope("k", {"at": number}, arrays)
            made.append(directory.stage_envelope("state-test", *envelope))
        pack = writing.finish()
        keep = [*made, *writing.packs.values()]
        state = {"files": [file.name for file in made], "packs": [file.name for file in writing.packs.values()]}
        assert pack is None or pack.name in state["packs"]
        directory.commit(state, keep)
        pieces.committed(writing)
    kept.update(state)
    return sum(file.length for name, file in directory.files().items() if name not in before)


def whole(directory: StoreDirectory, pieces: Pieces) -> list[Envelope]:
    files = directory.files()
    pieces.opened([files[name] for name in directory.state["packs"]])
    found = [pieces.whole(directory.read_envelope(files[name])) for name in directory.state["files"]]
    pieces.read()
    return found


@pytest.mark.parametrize("seed", range(4))
def test_windows_that_move_on_are_written_once_and_read_whole_over_restarts(seed: int, tmp_path: Path) -> None:
    random = np.random.default_rng(seed)
    n, step, written, new = 60_000, 3_000, 0, 0
    stream = random.integers(0, 1 << 50, n + 40 * step)
    lengths = random.integers(0, 9, n + 40 * step)
    directory, state = StoreDirectory.open(tmp_path / "s"), {}
    pieces = Pieces(directory)
    for at in range(40):
        window = slice(at * step, at * step + n)
        offsets = np.concatenate([[0], np.cumsum(lengths[window])]).astype(np.int32)
        arrays = {"0/": stream[window], "1/0.offsets": offsets, "2/": np.arange(5)}
        written += staged(directory, pieces, [arrays, {"0/": stream[window]}], state)
        new += step * 12
        if random.random() < 0.2:
            directory.close()
            directory = StoreDirectory.open(tmp_path / "s")
            pieces = Pieces(directory)
            (one, other) = whole(directory, pieces)
            assert one.params == {"at": 0}
            assert list(one.arrays) == list(arrays)
            assert all(np.array_equal(one.arrays[name], array) for name, array in arrays.items())
            assert np.array_equal(other.arrays["0/"], stream[window])
            assert other.kind == "k"
    assert written < 12 * n + 3.5 * new
    held = sum(file.length for file in directory.files().values())
    assert held < 3 * (stream[:n].nbytes + 4 * n)
    directory.close()


def test_what_does_not_fit_together_is_refused(tmp_path: Path) -> None:
    with StoreDirectory.open(tmp_path / "s") as directory:
        pieces = Pieces(directory)
        array = np.random.default_rng(0).integers(0, 1 << 60, LEAST)
        staged(directory, pieces, [{"0/": array, "1/": np.arange(3)}], {})
        good = directory.read_envelope(directory.files()[directory.state["files"][0]])
        pieces.opened([directory.files()[name] for name in directory.state["packs"]])
        params: dict[str, Any] = dict(good.params)
        cut, places = params["cut"], good.arrays["places"]

        def changed(params: dict[str, Any], places: Array) -> Envelope:
            return Envelope(good.kind, params, {**good.arrays, "places": places}, "x")

        assert np.array_equal(pieces.whole(changed(params, places)).arrays["0/"], array)
        (name, dtype, shape, count) = cut[0]
        wrong = [
            changed({**params, "cut": None}, places),
            changed({**params, "cut": []}, places),
            changed({**params, "cut": [[name, "|O", shape, count]]}, places),
            changed({**params, "cut": [[name, dtype, [1 << 62], count]]}, places),
            changed({**params, "cut": [[name, dtype, "x", count]]}, places),
            changed({**params, "cut": [[name, dtype, shape, count + 1]]}, places),
            changed({**params, "cut": [["1/", dtype, shape, count]]}, places),
            changed({**params, "order": ["0/"]}, places),
            changed({**params, "params": 3}, places),
            changed(params, places[:-1]),
            changed(params, places + np.array([1, 0, 0])),
            changed(params, places + np.array([0, 1 << 40, 0])),
            changed(params, places + np.array([0, -1, 0])),
            changed(params, places + np.array([0, 0, 1 << 20])),
        ]
        for envelope in wrong:
            with pytest.raises(EnvelopeError, match="needed"):
                pieces.whole(envelope)


def test_a_checkpoint_of_a_large_window_writes_what_is_new_and_a_later_process_goes_on(tmp_path: Path) -> None:
    """Two queries that hold the same, a summary, a window of 20,000 rows; a tenth of it is new each time."""
    names = {"one": "k < 50", "two": "k >= 50"}
    text = "SELECT k, n FROM (SELECT a.k, b.n FROM a, b WHERE a.k = b.k AND a.n = b.n) q WHERE {} WINDOW 20000"
    told: dict[bool, list[Any]] = {}
    for again in (True, False):
        path = tmp_path / f"s{again}"
        db = nile.connect(path, checkpoint=None)
        for stream in "ab":
            db.stream(stream, [("t", pa.int64()), ("k", pa.int64()), ("n", pa.int64()), ("w", pa.string())], time="t")
        for name, condition in names.items():
            db.subscribe(text.format(condition), name=name, emit="changes")
        written = []
        for at in range(0, 30_000, 2_000):
            n = np.arange(at, at + 2_000)
            rows = {"t": n, "k": n * n % 101, "n": n, "w": [f"w{i % 7}" for i in n]}
            for stream in "ab":
                db.push(stream, rows, offset=int(at))
            for name in names:
                told.setdefault(again, []).extend(db.subscription(name).poll())
            before = {each.name for each in (path / "data").iterdir()}
            db.checkpoint()
            made = [each for each in (path / "data").iterdir() if each.name not in before and "-state" in each.name]
            written.append(sum(each.stat().st_size for each in made))
            if again and at % 10_000 == 0:
                db.close()
                db = nile.connect(path, checkpoint=None)
        held = db.subscription("one").memory
        assert held > 1_000_000
        assert max(written[11:]) < held / 4
        db.close()
    assert pa.Table.from_batches(told[True]).equals(pa.Table.from_batches(told[False]))
