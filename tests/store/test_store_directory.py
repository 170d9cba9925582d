"""The store as its users meet it: what was committed is there, anything else never is, and every refusal says why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nile.pyramid.disk import StoredFile, StoreDirectory
from nile.summaries import envelope
from nile.summaries.errors import (
    EnvelopeError,
    StoreCorrupt,
    StoreError,
    StoreTooNew,
)

ROOT = Path(__file__).parents[2]


def listing(path: Path) -> dict[str, bytes]:
    """Every file below `path` but the lock, with its bytes."""
    files = (file for file in sorted(path.rglob("*")) if file.is_file() and file.name != "LOCK")
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def test_what_was_committed_is_there_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with StoreDirectory.open(path) as store:
        assert (store.epoch, dict(store.state), dict(store.files()), store.recovered) == (0, {}, {}, None)
        zone = store.stage("zone", [b"abc", memoryview(b"def"), b""])
        empty = store.stage("zone", b"")
        state = store.stage_envelope("state", "counts", {"rows": 3}, {"a": np.arange(5)})
        with store.stage_path("cold", suffix=".parquet", folder="lake/stream=s/day=3") as staged:
            staged.path.write_bytes(b"PAR1")
        kept = [zone, empty, state, staged.file]
        assert store.commit({"at": (1, 2), "name": "häuser"}, kept) == 1
        assert store.state == {"at": [1, 2], "name": "häuser"}
    with StoreDirectory.open(path, create=False) as store:
        assert (store.epoch, store.recovered) == (1, None)
        assert store.state == {"at": [1, 2], "name": "häuser"}
        assert store.files() == {file.name: file for file in kept}
        assert bytes(store.read(zone)) == b"abcdef"
        assert bytes(store.read(empty)) == b""
        assert bytes(store.map(staged.file)) == b"PAR1"
        assert store.location(staged.file).name.endswith("-cold.parquet")
        counts = store.read_envelope(state)
        assert (counts.kind, counts.params, counts.arrays["a"].tolist()) == ("counts", {"rows": 3}, [0, 1, 2, 3, 4])
        assert bytes(store.read(state)) == envelope.pack("counts", {"rows": 3}, {"a": np.arange(5)})


def test_what_was_not_committed_is_gone_after_reopening(tmp_path: Path) -> None:
    with StoreDirectory.open(tmp_path) as store:
        first = store.stage("zone", b"first")
        store.commit({"n": 1}, [first])
        before = listing(tmp_path)
        store.stage("zone", b"second")
        with store.stage_path("cold", folder="lake/a") as staged:
            staged.path.write_bytes(b"third")
        (tmp_path / "data/00000002-00009-zone.tmp").write_bytes(b"torn")
        assert listing(tmp_path) != before
    with StoreDirectory.open(tmp_path) as store:
        assert listing(tmp_path) == before
        assert (store.epoch, store.state) == (1, {"n": 1})


def test_files_that_no_generation_names_any_more_are_removed_and_their_maps_stay(tmp_path: Path) -> None:
    with StoreDirectory.open(tmp_path) as store:
        shared = store.stage("zone", b"shared")
        old = store.stage("zone", b"old")
        store.commit({"n": 1}, [shared, old])
        view = store.map(old)
        store.commit({"n": 2}, [shared])
        assert bytes(store.read(old)) == b"old"  # the generation before still names it
        store.commit({"n": 3}, [shared])
        assert not store.location(old).exists()
        assert bytes(view) == b"old"
        with pytest.raises(StoreCorrupt, match="missing"):
            store.read(old)
        assert bytes(store.read(shared)) == b"shared"


def test_a_file_may_come_back_from_the_generation_before(tmp_path: Path) -> None:
    with StoreDirectory.open(tmp_path) as store:
        file = store.stage("zone", b"x")
        store.commit({}, [file])
        store.commit({}, [])
        store.commit({}, [file])
        store.commit({}, [file])
        assert bytes(store.read(file)) == b"x"


def test_staged_files_stay_until_they_are_discarded(tmp_path: Path) -> None:
    with StoreDirectory.open(tmp_path) as store:
        one, two, three = (store.stage("zone", name) for name in (b"1", b"2", b"3"))
        store.commit({}, [one])
        assert bytes(store.read(two)) == b"2"
        store.discard([two, one])
        assert store.location(one).exists()
        assert not store.location(two).exists()
        store.discard()
        assert not store.location(three).exists()
        with pytest.raises(StoreError, match="stage it again"):
            store.commit({}, [two])
        assert store.commit({}, [one]) == 2


def test_bulk_is_streamed_and_never_held(tmp_path: Path) -> None:
    held = []

    def parts() -> Any:
        for at in range(40):
            piece = bytes([at]) * (1 << 20)
            held.append(len(piece))
            yield piece

    with StoreDirectory.open(tmp_path) as store:
        import tracemalloc

        tracemalloc.start()
        try:
            file = store.stage("zone", parts())
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
        finally:
            tracemalloc.stop()
        assert file.length == sum(held) == 40 << 20
        assert store.read(file)[5 << 20] == 5


def test_a_writer_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def torn() -> Any:
        yield b"half"
        raise ZeroDivisionError

    with StoreDirectory.open(tmp_path) as store:
        before = listing(tmp_path)
        with pytest.raises(ZeroDivisionError):
            store.stage("zone", torn())
        with pytest.raises(ZeroDivisionError), store.stage_path("cold") as staged:
            staged.path.write_bytes(b"".join(torn()))
        with pytest.raises(StoreError, match="end of the with block"):
            _ = staged.file
        with pytest.raises(StoreError, match="needed a file there"), store.stage_path("cold"):
            pass  # a writer that wrote nothing
        assert listing(tmp_path) == before


@pytest.mark.parametrize("state", [{"x": float("nan")}, {"x": object()}, {"x": np.int64(3)}, [1], {"x": {1, 2}}])
def test_a_state_that_is_no_json_is_refused_and_changes_nothing(tmp_path: Path, state: Any) -> None:
    with StoreDirectory.open(tmp_path) as store:
        before = listing(tmp_path)
        with pytest.raises(StoreError, match="JSON"):
            store.commit(state, [])
        assert listing(tmp_path) == before
        assert store.commit({}, []) == 1


def test_a_file_of_another_store_is_refused(tmp_path: Path) -> None:
    with StoreDirectory.open(tmp_path / "a") as a, StoreDirectory.open(tmp_path / "b") as b:
        file = a.stage("zone", b"x")
        with pytest.raises(StoreError, match="staged here"):
            b.commit({}, [file])
        forged = StoredFile(file.name, file.role, file.length, "0" * 64)
        with pytest.raises(StoreError, match="staged here"):
            a.commit({}, [forged])


@pytest.mark.parametrize(
    ("role", "suffix", "folder"),
    [
        ("", "", "data"),
        ("../x", "", "data"),
        ("A", "", "data"),
        ("x" * 40, "", "data"),
        ("x", "/../y", "data"),
        ("x", ".tmp", "data"),
        ("x", "", "elsewhere"),
        ("x", "", "lake/../.."),
        ("x", "", "lake/.hidden"),
        ("x", "", "/tmp"),
    ],
)
def test_names_that_could_leave_the_store_are_refused(tmp_path: Path, role: str, suffix: str, folder: str) -> None:
    with StoreDirectory.open(tmp_path) as store:
        before = listing(tmp_path)
        with pytest.raises(StoreError, match="needed"), store.stage_path(role, suffix=suffix, folder=folder):
            pass
        assert listing(tmp_path) == before


# --- versions ----------------------------------------------------------------------------------------------


def remake_manifest(path: Path, name: str, **changes: Any) -> None:
    """A manifest with other params or members under a good checksum."""
    old = envelope.unpack((path / name).read_bytes())
    arrays = dict(old.arrays)
    for key in ("files", "state"):
        if key in changes:
            arrays[key] = np.frombuffer(json.dumps(changes.pop(key)).encode(), np.uint8)
    (path / name).write_bytes(envelope.pack(changes.pop("kind", old.kind), {**old.params, **changes}, arrays))


def test_a_store_of_a_newer_nile_is_refused_and_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with StoreDirectory.open(tmp_path) as store:
        store.commit({"n": 1}, [])
        store.commit({"n": 2}, [])
        good = (tmp_path / "manifest-0").read_bytes()
    remake_manifest(tmp_path, "manifest-0", format=2)
    before = listing(tmp_path)
    with pytest.raises(StoreTooNew, match=r"manifest-0: needed a store of format 1 or older; got format 2; upgrade"):
        StoreDirectory.open(tmp_path)
    assert listing(tmp_path) == before
    (tmp_path / "manifest-0").write_bytes(good)
    monkeypatch.setattr(envelope, "VERSION", 2)
    remake_manifest(tmp_path, "manifest-0")
    monkeypatch.undo()
    for options in ({}, {"read_only": True}):
        with pytest.raises(StoreTooNew, match=r"needed version 1 or older; got version 2; upgrade Nile"):
            StoreDirectory.open(tmp_path, **options)


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "sample"},
        {"epoch": 3},
        {"epoch": -2},
        {"epoch": "2"},
        {"format": 0},
        {"written": 3},
        {"state": []},
        {"files": {}},
        {"files": [3]},
        {"files": [["data/00000001-00000-zone", "zone", 1, "0" * 64]]},
        {"files": [["../00000001-00000-zone", "zone", 1, "0" * 64, False]]},
        {"files": [["/etc/passwd", "zone", 1, "0" * 64, False]]},
        {"files": [["lake/../../00000001-00000-zone", "zone", 1, "0" * 64, False]]},
        {"files": [["data/00000001-00000-zone.tmp", "zone", 1, "0" * 64, False]]},
        {"files": [["data/00000001-00000-zone", "zone", -1, "0" * 64, False]]},
        {"files": [["data/00000001-00000-zone", "zone", True, "0" * 64, False]]},
        {"files": [["data/00000001-00000-zone", "Zone", 1, "0" * 64, False]]},
        {"files": [["data/00000001-00000-zone", "zone", 1, "0" * 63 + "g", False]]},
        {"files": [["data/00000001-00000-zone", "zone", 1, "0" * 64, 0]]},
        {"files": [["data/00000001-00000-zone", "zone", 1, "0" * 64, False]] * 2},
    ],
    ids=lambda changes: json.dumps(changes)[:70],
)
def test_a_hostile_manifest_is_refused_even_under_a_good_checksum(tmp_path: Path, changes: dict[str, Any]) -> None:
    with StoreDirectory.open(tmp_path) as store:
        store.commit({"n": 1}, [])
        store.commit({"n": 2}, [])
    remake_manifest(tmp_path, "manifest-0", **changes)
    with (
        pytest.warns(UserWarning, match=r"manifest-0 is damaged .*went back to epoch 1"),
        StoreDirectory.open(tmp_path) as store,
    ):
        assert store.state == {"n": 1}


def test_an_envelope_in_a_store_that_is_none_is_named(tmp_path: Path) -> None:
    with StoreDirectory.open(tmp_path) as store:
        file = store.stage("zone", b"no envelope")
        with pytest.raises(StoreCorrupt, match=str(store.location(file))):
            store.read_envelope(file)
        with pytest.raises(EnvelopeError):
            store.stage_envelope("state", "k", {}, {"a": np.array(["text"])})
