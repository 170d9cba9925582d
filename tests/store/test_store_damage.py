"""Altered, cut and missing files: refused, the generation before is used, and `check` and `repair` say the rest."""

from __future__ import annotations

import json
import shutil
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest
from store_killer import in_memory

from nile.pyramid.disk import StoredFile, StoreDirectory
from nile.pyramid.disk.care import check, describe, repair
from nile.summaries.errors import StoreCorrupt, StoreLocked, StoreMissing, StoreRecovered

ZONE, COLD = b"zone" * 300, b"cold" * 200


@pytest.fixture
def path() -> Iterator[Path]:
    """A store at epoch 3: a zone and a cold file in both generations, a zone and a state file of its own in each."""
    with in_memory() as folder:
        root = folder / "store"
        with StoreDirectory.open(root) as store:
            shared = store.stage("zone", ZONE)
            with store.stage_path("cold", suffix=".parquet", folder="lake/s=1") as staged:
                staged.path.write_bytes(COLD)
            for n in (1, 2, 3):
                own = store.stage("zone", ZONE + bytes([n]))
                state = store.stage_envelope("state", "counts", {"n": n}, {"a": np.full(20, n)})
                store.commit({"n": n, "streams": {"s": {"tuples": n * 1000}}}, [shared, staged.file, own, state])
        yield root


def kinds(path: Path) -> dict[str, list[Path]]:
    """The files of the store by what they are for."""
    with StoreDirectory.open(path, read_only=True) as store:
        now = {str(store.location(file)) for file in store.files().values()}
        assert store._previous is not None
        before = {str(store.location(file)) for file in store._previous.files.values()}
    files = {
        "manifest now": [path / "manifest-1"],
        "manifest before": [path / "manifest-0"],
        "state now": [Path(f) for f in sorted(now - before) if f.endswith("-state")],
        "state before": [Path(f) for f in sorted(before - now) if f.endswith("-state")],
        "zone now": [Path(f) for f in sorted(now - before) if f.endswith("-zone")],
        "zone before": [Path(f) for f in sorted(before - now) if f.endswith("-zone")],
        "shared": [Path(f) for f in sorted(now & before)],
    }
    assert all(files.values())
    assert sum(map(len, files.values())) == 8
    return files


def opened(path: Path, *, read_only: bool = True) -> tuple[int, str | None]:
    """The state in force, whole but for big files, and the message."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", StoreRecovered)
        with StoreDirectory.open(path, read_only=read_only) as store:
            n = int(store.state["n"])
            assert store.epoch == n
            state = next(file for file in store.files().values() if file.role == "state")
            counts = store.read_envelope(state)
            assert (counts.params["n"], counts.arrays["a"].tolist()) == (n, [n] * 20)
            assert [str(warning.message) for warning in caught] == ([store.recovered] if store.recovered else [])
            return n, store.recovered


def judge(path: Path, kind: str, damaged: Path) -> None:
    """What opening, reading and checking must say after some damage to this file."""
    n, message = opened(path)
    if kind in ("manifest now", "state now"):
        assert n == 2
        assert message is not None
        assert str(damaged.relative_to(path)) in message
        assert "went back to epoch 2" in message
    else:
        assert n == 3
        assert (message is not None) == (kind == "manifest before")
    if kind in ("zone now", "shared"):
        with StoreDirectory.open(path, read_only=True) as store:
            (file,) = (file for file in store.files().values() if store.location(file) == damaged)
            with pytest.raises(StoreCorrupt, match=f"{file.name} .*nile store repair"):
                store.read(file)
    checked = check(path)
    assert len(checked.wrong) == 1
    assert str(damaged.relative_to(path)) in checked.wrong[0]
    whole = {"now": [2], "before": [3], "shared": []}[kind.split()[-1]]
    assert checked.epochs == whole


def flipped(path: Path, count: int, seed: int) -> Counter[str]:
    """Flip a bit, judge, mend, so many times; how many flips each kind of file was judged with."""
    rng = Random(seed)
    judged: Counter[str] = Counter()
    by_kind = kinds(path)
    for _ in range(count):
        kind = rng.choice(sorted(by_kind))
        file = rng.choice(by_kind[kind])
        good = file.read_bytes()
        bad = bytearray(good)
        at = rng.randrange(len(bad) * 8)
        bad[at // 8] ^= 1 << at % 8
        file.write_bytes(bad)
        judge(path, kind, file)
        judged[kind] += 1
        file.write_bytes(good)
    assert check(path).wrong == []
    return judged


@pytest.mark.parametrize(
    ("count", "seed"), [(600, 1), pytest.param(20_000, 2, marks=pytest.mark.long)], ids=["600", "20,000"]
)
def test_every_flipped_bit_is_found_in_every_kind_of_file(path: Path, count: int, seed: int) -> None:
    judged = flipped(path, count, seed)
    assert judged.total() == count
    assert set(judged) == set(kinds(path))
    assert min(judged.values()) > count // (2 * len(judged))


@pytest.mark.parametrize("kind", ["manifest now", "manifest before", "state now", "state before"])
def test_every_truncation_of_manifests_and_state_files(path: Path, kind: str) -> None:
    (file,) = kinds(path)[kind]
    good = file.read_bytes()
    assert len(good) > 300
    for length in range(len(good)):
        file.write_bytes(good[:length])
        if length % 10 and length > 70:
            n, message = opened(path)
            assert n == (3 if kind.endswith("before") else 2)
            assert (message is not None) == (kind != "state before")
        else:
            judge(path, kind, file)
    file.write_bytes(good + b"\0")
    judge(path, kind, file)
    file.unlink()
    judge(path, kind, file)


@pytest.mark.parametrize("kind", ["zone now", "shared"])
def test_big_files_that_are_cut_or_missing_are_noticed_when_the_store_is_opened(path: Path, kind: str) -> None:
    file = kinds(path)[kind][0]
    good = file.read_bytes()
    for bad in (good[:-1], b"", good + b"x", None):
        file.unlink(missing_ok=True)
        if bad is not None:
            file.write_bytes(bad)
        if kind == "zone now":
            n, message = opened(path)
            assert n == 2
            assert str(file.relative_to(path)) in str(message)
        else:
            with pytest.raises(
                StoreCorrupt, match=r"epoch 3 is not whole: .*; epoch 2 is not whole: .*nile store repair"
            ):
                StoreDirectory.open(path)


def test_a_writer_goes_on_from_the_generation_before_and_heals_the_store(path: Path) -> None:
    by_kind = kinds(path)
    (path / "manifest-1").write_bytes(b"\x89NILE")
    before = sorted(file.name for file in (path / "data").iterdir())
    with pytest.warns(StoreRecovered, match="manifest-1 is damaged"):
        opening = StoreDirectory.open(path)
    with opening as store:
        assert store.epoch == 2
        assert sorted(file.name for file in (path / "data").iterdir()) == before  # nothing goes before a commit
        fresh = store.stage("zone", b"fresh")
        assert store.commit({"n": 3}, [*store.files().values(), fresh]) == 3
        assert str(store.location(fresh)) not in {str(f) for files in by_kind.values() for f in files}
    assert check(path).wrong == []
    assert check(path).notes == []
    with StoreDirectory.open(path) as store:
        assert (store.epoch, store.recovered) == (3, None)
        assert bytes(store.read(fresh)) == b"fresh"
    assert not by_kind["state now"][0].exists()


def test_both_generations_gone_is_an_error_that_says_what_to_do(path: Path) -> None:
    for name in ("manifest-0", "manifest-1"):
        (path / name).write_bytes(b"x")
    before = sorted(path.rglob("*"))
    for read_only in (False, True):
        with pytest.raises(StoreCorrupt, match=r"manifest-0 is damaged .*manifest-1 is damaged .*nile store repair"):
            StoreDirectory.open(path, read_only=read_only)
    (path / "manifest-0").unlink()
    (path / "manifest-1").unlink()
    with pytest.raises(StoreCorrupt, match=r"\d+ data files and neither"):
        StoreDirectory.open(path)
    assert set(before) - set(path.rglob("*")) == {path / "manifest-0", path / "manifest-1"}


def test_an_empty_store_is_never_gone_back_to(tmp_path: Path) -> None:
    with StoreDirectory.open(tmp_path) as store:
        store.commit({"n": 1}, [store.stage("state", b"all there is")])
    good = (tmp_path / "manifest-1").read_bytes()
    (tmp_path / "manifest-1").write_bytes(good[:-1])
    with pytest.raises(StoreCorrupt, match="manifest-1 is damaged"):
        StoreDirectory.open(tmp_path)
    (tmp_path / "manifest-1").write_bytes(good)
    (tmp_path / "manifest-0").unlink()
    with pytest.warns(StoreRecovered, match="manifest-0 is missing"), StoreDirectory.open(tmp_path) as store:
        assert store.state == {"n": 1}


def test_a_reader_beside_a_busy_writer_always_sees_a_whole_generation(tmp_path: Path) -> None:
    import threading

    stop = threading.Event()
    with StoreDirectory.open(tmp_path) as store:
        store.commit({"n": 0, "x": 0}, [store.stage("state", b"0")])

        def write() -> None:
            n = 0
            while not stop.is_set():
                n += 1
                store.commit({"n": n}, [store.stage("state", str(n).encode())])

        writer = threading.Thread(target=write)
        writer.start()
        try:
            seen = set()
            reads = 0
            while reads < 150 or (len(seen) <= 5 and reads < 10_000):  # a loaded machine may hardly run the writer
                reads += 1
                with StoreDirectory.open(tmp_path, read_only=True) as reader:
                    assert reader.recovered is None
                    seen.add(reader.epoch)
                assert check(tmp_path).wrong == []
        finally:
            stop.set()
            writer.join()
    assert len(seen) > 5


# --- info, check, repair -------------------------------------------------------------------------------------


def test_what_a_store_holds(path: Path) -> None:
    told = describe(path)
    assert (told.epoch, told.files, told.recovered) == (3, 4, None)
    assert told.state["streams"] == {"s": {"tuples": 3000}}
    assert told.roles["zone"] == (2, 2 * len(ZONE) + 1)
    assert told.tiers == {"cold": (1, len(COLD)), "warm": told.roles["zone"], "state": told.roles["state"]}
    assert told.bytes == sum(size for _, size in told.tiers.values())
    with pytest.raises(StoreMissing):
        describe(path / "data/none")


def test_a_store_that_is_well_is_left_alone(path: Path) -> None:
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name != "LOCK"}
    repaired = repair(path, do=True)
    assert (repaired.action, repaired.done, repaired.lost) == ("nothing", False, {})
    assert before == {file: file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name != "LOCK"}


def damage(path: Path, *wanted: str) -> list[Path]:
    by_kind = kinds(path)
    files = [by_kind[kind][0] for kind in wanted]
    for file in files:
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 4
        file.write_bytes(data)
    return files


@pytest.mark.parametrize(
    ("wanted", "action", "n"),
    [
        (["manifest now"], "previous", 2),
        (["state now"], "previous", 2),
        (["zone now"], "previous", 2),
        (["manifest before"], "previous", 3),  # it may have been a later one: who can tell
        (["state before"], "copy", 3),
        (["zone before"], "copy", 3),
        (["shared"], "drop", 3),
        (["shared", "state now"], "drop", 2),
        (["shared", "manifest now"], "drop", 2),
        (["shared", "zone now", "zone before"], "drop", 3),
        (["state now", "state before"], "empty", None),
        (["manifest now", "manifest before"], "empty", None),
        (["manifest now", "state before"], "empty", None),
    ],
    ids=str,
)
def test_what_can_be_saved_is_saved_and_the_rest_is_told(
    path: Path, wanted: list[str], action: str, n: int | None
) -> None:
    bad = damage(path, *wanted)
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name != "LOCK"}
    told = repair(path)
    assert (told.action, told.done) == (action, False)
    assert len(told.reasons) == len(wanted)
    assert before == {file: file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name != "LOCK"}
    done = repair(path, do=True)
    assert (done.action, done.done, done.lost) == (action, True, told.lost)
    checked = check(path)
    assert checked.wrong == []
    assert checked.epochs in ([done.epoch, done.epoch - 1], [0])
    with StoreDirectory.open(path) as store:
        assert store.recovered is None
        assert store.epoch == done.epoch
        assert store.state.get("n") == n
        for file in store.files().values():
            store.read(file)
        if action == "drop":
            lost = [f"{f.relative_to(path)}" for f in bad if f"{n}" and f.name.endswith(("zone", "parquet"))]
            named = [name for name in lost if name in store.state["lost"]]
            assert set(store.state["lost"]) == set(told.lost) == set(named)
            assert not set(named) & set(store.files())
            assert all(set(entry) == {"role", "length", "why"} for entry in store.state["lost"].values())
        store.commit({"n": 9}, list(store.files().values()))
    assert check(path).wrong == []
    report = json.loads(Path(str(done.report)).read_text())
    assert report["action"] == action
    assert report["lost"] == told.lost
    kept = [file.name for file in (path / "lost").iterdir()]
    for file in bad:  # the bytes are still there, for whoever can make something of them
        if not file.name.startswith("manifest") and file.relative_to(path).as_posix() in told.lost:
            assert any(name.endswith(file.name) for name in kept)
    assert repair(path).action == "nothing"


def test_a_repair_that_is_stopped_anywhere_can_be_done_again(path: Path) -> None:
    from random import Random as Rng

    from crash_files import Crash, CrashFiles

    damage(path, "shared")
    at = 0
    while True:
        at += 1
        root = shutil.copytree(path.parent, path.parent.parent / f"{path.parent.name}-{at}")
        disk = CrashFiles(root, Rng(at), at)
        left = root.with_name(root.name + "-left")
        try:
            repair(root / "store", do=True, files=disk)
            stopped = False
        except Crash:
            stopped = True
            disk.crash(left, Rng(at))
            if repair(left / "store").action != "nothing":
                repair(left / "store", do=True)
            assert check(left / "store").wrong == []
            with StoreDirectory.open(left / "store") as store:
                assert store.state["n"] == 3
                assert len(store.state["lost"]) == 1
        finally:
            shutil.rmtree(root)
            shutil.rmtree(left, ignore_errors=True)
        if not stopped:
            break
    assert at > 10


def test_a_store_in_use_is_checked_and_not_repaired(path: Path) -> None:
    with StoreDirectory.open(path) as store:
        assert check(path).wrong == []
        assert isinstance(store.stage("zone", b"x"), StoredFile)
        assert "1 files that no generation names" in check(path).notes[0]
        with pytest.raises(StoreLocked):
            repair(path)


def test_a_state_file_is_verified_at_every_reading_but_the_first(path: Path) -> None:
    (file,) = kinds(path)["state now"]
    with StoreDirectory.open(path) as store:
        (state,) = (entry for entry in store.files().values() if entry.role == "state")
        assert store.read_envelope(state).params["n"] == 3  # opening has just verified it
        bad = bytearray(file.read_bytes())
        bad[-1] ^= 1
        file.write_bytes(bad)
        with pytest.raises(StoreCorrupt, match="was altered"):
            store.read_envelope(state)
