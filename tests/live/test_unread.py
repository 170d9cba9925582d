"""Outputs that nobody reads: in the store's files, named and not written again, and bounded without a store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from thinning import thinned

import nile
from nile.durable import keeper
from nile.execution.live import live, subscriptions
from nile.pyramid.disk.care import check

COLUMNS = pa.schema([("t", pa.int64()), ("k", pa.string()), ("x", pa.float64()), ("odd", pa.bool_())])
TEXT = "SELECT t, k, x, odd FROM s WHERE k <> 'never'"


def rows(begin: int, count: int) -> dict[str, Any]:
    at = range(begin, begin + count)
    return {
        "t": list(at), "k": [None if i % 7 == 0 else f"key {i}" for i in at], "x": [i / 3 for i in at],
        "odd": [None if i % 5 == 0 else i % 2 == 1 for i in at],
    }  # fmt: skip


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "_SEALED", 2_000)


def opened(path: Path, **options: Any) -> nile.Database:
    db = nile.connect(path, checkpoint=None, **options)
    db.stream("s", COLUMNS, time="t")
    return db


def numbered(standing: Any) -> list[tuple[int, Any]]:
    return [(first + i, row) for first, batch in standing.poll_numbered() for i, row in enumerate(batch.to_pylist())]


def wanted(count: int) -> list[tuple[int, Any]]:
    table = pa.table(rows(0, count), schema=COLUMNS)
    return list(enumerate(row for row in table.to_pylist() if row["k"] is not None))


def query_bytes(db: nile.Database) -> dict[str, int]:
    directory = db._live._keeper.directory  # type: ignore[union-attr]
    return {
        name: file.length for name, file in directory.files().items() if "query" in file.role or "unread" in file.role
    }


def test_checkpoints_name_what_waits_and_write_only_what_is_new(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        db.subscribe(TEXT, name="lonely")
        db.push("s", rows(0, 3_000))
        db.checkpoint()
        first = query_bytes(db)
        db.push("s", rows(3_000, 200))
        db.checkpoint()
        second = query_bytes(db)
        new = {name: size for name, size in second.items() if name not in first}
        assert len(set(first) & set(second)) == 1
        assert sum(new.values()) < sum(first.values()) / 3
        assert db.unread == {"lonely": len(wanted(3_200))}
    with opened(tmp_path) as db:
        assert db.unread == {"lonely": len(wanted(3_200))}
        db.advance(10_000)
        assert numbered(db.subscription("lonely")) == wanted(3_200)
        db.checkpoint()
        db.checkpoint()
        assert all("unread" not in file.role for file in db._live._keeper.directory.files().values())  # type: ignore[union-attr]
    assert not check(tmp_path).wrong
    assert not list(tmp_path.glob("data/*state-unread*"))


def test_a_part_that_was_read_is_not_there_again(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        db.subscribe(TEXT, name="lonely")
        for begin in range(0, 4_000, 500):
            db.push("s", rows(begin, 500))
            db.checkpoint()
        db.subscription("lonely").poll()
        db.push("s", rows(4_000, 500))
        db.checkpoint()
    with opened(tmp_path) as db:
        db.advance(10_000)
        got = numbered(db.subscription("lonely"))
        assert got == wanted(4_500)[-len(got) :]
        assert len(got) < 600


def test_dropping_the_oldest_lets_go_of_parts_of_files(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        lonely = db.subscribe(TEXT, name="lonely", unread=700, when_full="drop")
        for begin in range(0, 4_000, 500):
            db.push("s", rows(begin, 500))
            db.checkpoint()
            assert lonely.unread <= 700
    with opened(tmp_path) as db:
        db.advance(10_000)
        got = numbered(db.subscription("lonely"))
        assert got == wanted(4_000)[-len(got) :]
        assert 700 <= len(got) <= 702


def test_memory_is_flat_between_checkpoints_too(tmp_path: Path) -> None:
    with opened(tmp_path, memory="16MB") as db:
        lonely, unnamed = db.subscribe(TEXT, name="lonely"), db.subscribe(TEXT)
        most = 0
        for begin in range(0, 200_000, 20_000):
            db.push("s", rows(begin, 20_000))
            most = max(most, lonely.unread_bytes + unnamed.unread_bytes)
        assert most < 6_000_000
        db.advance(300_000)
        assert numbered(lonely) == numbered(unnamed) == wanted(200_000)


def test_a_callback_is_told_what_waited_in_files(tmp_path: Path) -> None:
    told: list[Any] = []
    with opened(tmp_path) as db:
        db.subscribe(TEXT, name="lonely")
        db.push("s", rows(0, 3_000))
    with opened(tmp_path) as db:
        db.subscribe(TEXT, lambda batch: told.extend(batch.to_pylist()), name="lonely")
        db.advance(10_000)
        db.checkpoint()
        assert list(enumerate(told)) == wanted(3_000)


def test_a_damaged_file_of_outputs_is_found_at_opening(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        db.subscribe(TEXT, name="lonely")
        db.push("s", rows(0, 3_000))
        db.checkpoint()
    (file,) = tmp_path.glob("data/*state-unread*")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(nile.StoreCorrupt):
        nile.connect(tmp_path)


def test_a_store_whose_outputs_are_read_is_one_that_older_versions_open(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        lonely = db.subscribe(TEXT, name="lonely")
        db.push("s", rows(0, 3_000))
        db.checkpoint()
        assert db._live._keeper.directory.state["format"] == 2  # type: ignore[union-attr]
        lonely.poll()
        db.checkpoint()
        assert db._live._keeper.directory.state["format"] == 1  # type: ignore[union-attr]


def test_without_a_store_pushes_are_refused_with_the_numbers_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "memory_bytes", lambda: 3_200_000)
    with nile.connect() as db:
        db.stream("s", COLUMNS, time="t")
        standing = db.subscribe(TEXT)
        taken = found = refused = 0
        said = ""
        while taken < 20_000:
            try:
                db.push("s", rows(taken, 500))
                taken += 500
            except nile.Overloaded as error:
                said = str(error)
                refused += 1
                found += sum(map(len, standing.poll()))
            assert standing.unread_bytes < 150_000
        assert refused > 3
        assert "100 kB" in said
        assert db.accounting("s").tuples_in == 20_000
        db.advance(30_000)
        assert found + sum(map(len, standing.poll())) == standing.outputs == len(wanted(20_000))


def test_groups_without_end_are_refused_with_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "memory_bytes", lambda: 8_000_000)
    monkeypatch.setattr(subscriptions, "_LOOK_EVERY", 1_000)
    with nile.connect() as db:
        db.stream("s", COLUMNS, time="t")
        grows = db.subscribe("SELECT k, count(*) AS n FROM s GROUP BY k", lambda _: None)
        held = db.subscribe("SELECT k, count(*) AS n FROM s GROUP BY k WINDOW 500", lambda _: None)
        pushed = 0

        def push_on() -> None:
            nonlocal pushed
            for pushed in range(0, 200_000, 1_000):
                db.push("s", rows(pushed, 1_000))

        with pytest.raises(nile.Overloaded, match=r"less than 2 MB of state .* got .* WINDOW"):
            push_on()
        assert db.accounting("s").tuples_in == pushed
        assert held.memory < 2_000_000 < grows.memory
        grows.close()
        db.push("s", rows(pushed, 1_000))


ENDLESS = """
import os, sys, numpy as np, pyarrow as pa, nile
from nile.base.machine import memory_held
path, total, batch = sys.argv[1], int(sys.argv[2]), 50_000

anonymous = lambda: memory_held("RssAnon") >> 10

def written():
    with open("/proc/self/io") as told:
        return next(int(line.split()[1]) for line in told if line.startswith("wchar"))

schema = pa.schema([("t", pa.int64()), ("k", pa.int64()), ("x", pa.float64())])
rng = np.random.default_rng(1)
with nile.connect(path, memory="64MB", checkpoint=None) as db:
    db.stream("s", schema, time="t")
    lonely = db.subscribe("SELECT t, k, x FROM s WHERE x > 0.2", name="lonely")
    for begin in range(0, total, batch):
        t = np.arange(begin, begin + batch)
        db.push("s", pa.table({"t": t, "k": rng.integers(0, 1000, batch), "x": rng.random(batch)}))
        if (begin // batch) % 10 == 9:
            before = written()
            db.checkpoint()
            print(begin + batch, anonymous() // 1024, (written() - before) // 1024, db.unread["lonely"], flush=True)
    db.advance(2 * total)
    expected = lonely.outputs
with nile.connect(path, memory="64MB", checkpoint=None) as db:
    ordinals = 0
    for first, part in db.subscription("lonely").poll_numbered():
        assert first == ordinals, (first, ordinals)
        ordinals += part.num_rows
    assert ordinals == expected, (ordinals, expected)
    print("read", ordinals, anonymous() // 1024, 0)
"""


def _endless(path: Path, rows: int) -> list[list[str]]:
    told = subprocess.run(
        [sys.executable, "-c", ENDLESS, str(path), str(rows)], capture_output=True, text=True, check=True
    )
    return [line.split() for line in told.stdout.splitlines()]


def _risen(lines: list[list[str]]) -> list[str]:
    """Memory and what a checkpoint writes, in MB and KB, where late ones are above early ones."""
    figures = np.array([[int(part) for part in line[1:3]] for line in lines if line[0] != "read"])
    early, late = (np.median(part, axis=0) for part in np.array_split(figures[2:], 2))
    told = [f"{early[0]} MB, then {late[0]} MB"] if late[0] >= early[0] + 40 else []
    if late[1] >= 1.3 * early[1] + 500:
        told.append(f"checkpoints of {early[1]} KB, then of {late[1]} KB")
    return told


@pytest.mark.parametrize("count", thinned([3_000_000, 4_000_000], 2))
def test_millions_of_rows_that_nobody_reads_take_no_memory_and_are_written_once(count: int, tmp_path: Path) -> None:
    assert _risen(_endless(tmp_path / "store", count)) == []


@pytest.mark.long
def test_ten_million_rows_that_nobody_reads_take_no_memory_and_are_written_once(tmp_path: Path) -> None:
    lines = _endless(tmp_path / "store", 10_000_000)
    assert _risen(lines) == []
    assert int(lines[-1][1]) == pytest.approx(8_000_000, rel=0.01)
