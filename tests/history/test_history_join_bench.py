"""The history benchmark: both contestants give the same answers, small."""

from __future__ import annotations

import gc
import mmap
from pathlib import Path

import pytest

from nile.experiments.benchmarks import history
from nile.experiments.benchmarks.history import FIRST, FORMULATIONS, Peer, Store, asked, drop_cache
from nile.experiments.benchmarks.history_data import make
from nile.summaries.errors import ConfigError


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    make(folder, 60_000, memory=1 << 20)
    return folder


@pytest.mark.parametrize("kind", list(FORMULATIONS))
def test_the_benchmark_compares_equal_answers(data: Path, kind: str) -> None:
    with Store(data) as store:
        since = store.since
        ours = asked(store, kind, since, whole=True)
        some = asked(store, kind, since)
    peer = Peer(data)
    for way in (*FORMULATIONS[kind], "literals"):
        theirs = peer.run(kind, way, since)
        if kind == "outliers":
            found = [tuple(row.values()) for batch in ours.pairs for row in batch.to_pylist()]
            assert sorted(found) == sorted(theirs)
            assert FIRST <= some.rows <= len(theirs)
        else:
            matches = {seq: 0 for seq, _ in theirs}
            for batch in ours.pairs:
                for row in batch.to_pylist():
                    ordinal = row["ordinal"]
                    matches[ordinal] = matches.get(ordinal, 0) + row["matches"]
            counted = sorted(n for n in matches.values() if n)
            assert counted == sorted(n for _, n in theirs)
            assert 0.9 * ours.rows <= some.rows <= ours.rows
    peer.close()


def test_what_is_mapped_is_told_to_stay_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "some"
    path.write_bytes(bytes(3 * mmap.PAGESIZE + 1))
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    assert mapped[-1] == 0
    assert drop_cache(tmp_path) > 0
    mapped.close()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not tell what is mapped")
def test_a_closed_store_maps_no_file(data: Path) -> None:
    with Store(data) as store:
        assert asked(store, "ranges", store.since).rows
    gc.collect()
    assert str(data) not in Path("/proc/self/maps").read_text(encoding="utf-8")


def test_cold_rounds_over_what_somebody_maps_are_refused(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_MAY_STAY", 0)
    with Store(data) as store:
        since = store.since
    kind, ways = next(iter(FORMULATIONS.items()))
    largest = max((path for path in data.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    with largest.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert mapped[0] >= 0
        with pytest.raises(ConfigError, match="stay in memory"):
            history._rounds(data, kind, next(iter(ways)), since, "cold", 1)
