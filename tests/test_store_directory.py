"""The store as its users meet it: what was committed is there, anything else never is, and every refusal says why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyramid.disk import StoredFile, StoreDirectory
from summaries import envelope
from summaries.errors import (
    EnvelopeError,
    NileError,
    NotAStore,
    StoreCorrupt,
    StoreError,
    StoreLocked,
    StoreMissing,
    StoreReadOnly,
    StoreTooNew,
)

ROOT = Path(__file__).parents[1]


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
        with pytest.raises(StoreError, match="stage it anew"):
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


# --- who may open ------------------------------------------------------------------------------------------


def test_a_second_writer_is_refused_by_pid_and_a_reader_is_not(tmp_path: Path) -> None:
    with StoreDirectory.open(tmp_path) as store:
        store.commit({"n": 1}, [store.stage("zone", b"x")])
        with pytest.raises(StoreLocked, match=f"this process \\(pid {os.getpid()}\\)") as refused:
            StoreDirectory.open(tmp_path)
        assert refused.value.pid == os.getpid()
        assert isinstance(refused.value, BlockingIOError)
        told = subprocess.run(
            [sys.executable, "-c", f"from pyramid.disk import StoreDirectory as S; S.open({str(tmp_path)!r})"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert f"lock held by process {os.getpid()};" in told.stderr
        with StoreDirectory.open(tmp_path, read_only=True) as reader:
            assert reader.state == {"n": 1}
            with pytest.raises(StoreReadOnly):
                reader.stage("zone", b"y")
            with pytest.raises(StoreReadOnly):
                reader.commit({}, [])
    with StoreDirectory.open(tmp_path) as store:
        assert store.epoch == 1


def test_a_dead_holder_does_not_block(tmp_path: Path) -> None:
    script = f"from pyramid.disk import StoreDirectory as S; s = S.open({str(tmp_path)!r})"
    holder = subprocess.Popen(
        [sys.executable, "-c", f"{script}; print('in', flush=True); input()"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "in\n"
        with pytest.raises(StoreLocked, match=f"process {holder.pid};"):
            StoreDirectory.open(tmp_path)
    finally:
        holder.kill()
        holder.communicate()
    with StoreDirectory.open(tmp_path) as store:
        assert store.commit({}, []) == 1


def test_a_fork_neither_writes_nor_keeps_the_lock(tmp_path: Path) -> None:
    store = StoreDirectory.open(tmp_path)
    store.commit({"n": 1}, [])
    read, write = os.pipe()
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            store.commit({"n": 2}, [])
        except StoreReadOnly:
            os.write(write, b"refused")
        finally:
            os.close(write)
            os.close(go)
            os.read(ready, 1)  # outlives the parent's hold
            os._exit(0)
    os.close(write)
    os.close(ready)
    try:
        assert os.read(read, 100) == b"refused"
        store.close()
        with StoreDirectory.open(tmp_path) as again:
            assert again.state == {"n": 1}
    finally:
        os.close(go)
        os.close(read)
        os.waitpid(child, 0)


def test_of_many_who_open_at_once_one_gets_in(tmp_path: Path) -> None:
    for turn in range(10):
        start, got = threading.Barrier(4), []

        def enter(start: threading.Barrier = start, got: list[Any] = got, turn: int = turn) -> None:
            start.wait()
            try:
                got.append(StoreDirectory.open(tmp_path / f"s{turn}"))
            except NileError as error:
                got.append(error)

        threads = [threading.Thread(target=enter) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stores = [entry for entry in got if isinstance(entry, StoreDirectory)]
        assert len(stores) == 1
        assert all(isinstance(entry, StoreLocked) for entry in got if entry not in stores)
        stores[0].commit({}, [])
        stores[0].close()


def test_a_closed_store_refuses(tmp_path: Path) -> None:
    store = StoreDirectory.open(tmp_path)
    file = store.stage("zone", b"x")
    store.commit({}, [file])
    store.close()
    store.close()
    for ask in (lambda: store.stage("zone", b""), lambda: store.read(file), lambda: store.commit({}, [])):
        with pytest.raises(StoreError, match="closed"):
            ask()


# --- where it may be ---------------------------------------------------------------------------------------


def test_nothing_is_made_where_a_store_was_to_be_found(tmp_path: Path) -> None:
    for options in ({"create": False}, {"read_only": True}):
        for path in (tmp_path / "absent", tmp_path):
            with pytest.raises(StoreMissing, match=f"{path}: needed a store"):
                StoreDirectory.open(path, **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "entries", [["notes.txt"], ["data/sales.parquet"], ["LOCK", "CURRENT"], ["lake/part-0.parquet", "x"]], ids=str
)
def test_a_folder_that_holds_something_else_is_not_touched(tmp_path: Path, entries: list[str]) -> None:
    for entry in entries:
        (tmp_path / entry).parent.mkdir(exist_ok=True)
        (tmp_path / entry).write_bytes(b"mine")
    before = sorted(tmp_path.rglob("*"))
    for options in ({}, {"read_only": True}):
        with pytest.raises(NotAStore, match="name another folder"):
            StoreDirectory.open(tmp_path, **options)
    assert sorted(tmp_path.rglob("*")) == before


def test_foreign_files_in_a_store_are_left_alone(tmp_path: Path) -> None:
    with StoreDirectory.open(tmp_path) as store:
        store.commit({}, [store.stage("zone", b"x")])
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "data/copy of zone").write_text("mine")
    (tmp_path / "lake/spark").mkdir(parents=True)
    (tmp_path / "lake/spark/part-00000.parquet").write_text("mine")
    with StoreDirectory.open(tmp_path) as store:
        store.commit({}, [])
        store.commit({}, [])
    assert (tmp_path / "notes.txt").exists()
    assert (tmp_path / "data/copy of zone").exists()
    assert (tmp_path / "lake/spark/part-00000.parquet").exists()


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotAStore, match="got a file"):
        StoreDirectory.open(tmp_path / "file")
    with pytest.raises(NotAStore, match=f"{tmp_path / 'file'} on the way"):
        StoreDirectory.open(tmp_path / "file" / "a" / "b")


def test_a_relative_path_holds_when_the_process_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with StoreDirectory.open("deep/down/store") as store:
        (tmp_path / "else").mkdir()
        monkeypatch.chdir(tmp_path / "else")
        store.commit({"n": 1}, [store.stage("zone", b"x")])
    assert list((tmp_path / "else").iterdir()) == []
    with StoreDirectory.open(tmp_path / "deep/down/store") as store:
        assert store.state == {"n": 1}


def test_a_link_to_a_store_is_that_store(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with StoreDirectory.open(tmp_path / "link") as store:
        store.commit({"n": 1}, [])
        with pytest.raises(StoreLocked):
            StoreDirectory.open(tmp_path / "real")
    assert (tmp_path / "real/manifest-1").exists()
    assert (tmp_path / "link").is_symlink()


def test_an_odd_umask_does_not_shut_the_owner_out(tmp_path: Path) -> None:
    before = os.umask(0o777)
    try:
        with StoreDirectory.open(tmp_path / "store") as store:
            store.commit({"n": 1}, [store.stage("zone", b"x")])
    finally:
        os.umask(before)
    files = [file for file in (tmp_path / "store").rglob("*") if file.is_file()]
    assert len(files) == 4
    assert all(file.stat().st_mode & 0o600 == 0o600 for file in files if file.name != "LOCK")
    with StoreDirectory.open(tmp_path / "store") as store:
        assert store.state == {"n": 1}


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
