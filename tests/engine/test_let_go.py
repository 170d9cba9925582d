"""Answers are let go with all that they hold when nobody has them any more, not when garbage is collected."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any
from weakref import ref

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import nile
from nile.engine.database import Database

N = 3_000
WORDS = ("nile.sql.", "nile.expressions.")
"""What reads a statement, which holds no rows."""


@pytest.fixture(scope="module")
def db() -> Database:
    db = nile.connect()
    for seed, name in enumerate("abc"):
        rng = np.random.default_rng(seed)
        ts = pa.array(np.arange(N) * 1_000_000).cast(pa.timestamp("ns"))
        db.register(name, pa.table({"ts": ts, "k": rng.integers(0, 60, N), "v": rng.random(N)}), time="ts")
    return db


@pytest.fixture(autouse=True)
def _no_collecting() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


def _join(db: Database, *names: str) -> Any:
    return db.join(*names, on="k", window=0.1)


ASKED: dict[str, Callable[[Database], Any]] = {
    "join": lambda db: _join(db, "a", "b").run(),
    "join of three": lambda db: _join(db, "a", "b", "c").run(),
    "ranges": lambda db: _join(db, "a", "b").returning("ranges").run(),
    "ranges, a part": lambda db: _join(db, "a", "b").returning("ranges").run(0.3),
    "desc": lambda db: _join(db, "a", "b").prefer("desc").run(0.3),
    "asc": lambda db: _join(db, "a", "b").prefer("asc").run(0.3),
    "weighted": lambda db: _join(db, "a", "b").prefer("weighted").run(0.3),
    "weighted of three": lambda db: _join(db, "a", "b", "c").prefer("weighted").run(0.3),
    "weighted, counted as found": lambda db: _join(db, "a", "b").prefer("weighted").using(costs="engine").run(0.3),
    "tuple by tuple": lambda db: _join(db, "a", "b").prefer("desc").using(costs="engine").run(0.3),
    "hash-drop": lambda db: _join(db, "a", "b").using(method="hash-drop").run(0.3),
    "seconds": lambda db: _join(db, "a", "b").prefer("desc").run(nile.Budget(seconds=1.0)),
    "selection": lambda db: db.sql("SELECT a.k, a.v FROM a WHERE a.v > 0.5"),
    "SQL": lambda db: db.sql("SELECT a.k, a.v, b.v AS w FROM a, b WHERE a.k = b.k WINDOW '100 ms'"),
    "SQL, a column each": lambda db: db.sql("SELECT a.v, b.v AS w FROM a, b WHERE a.k = b.k WINDOW '100 ms'"),
    "SQL, groups": lambda db: db.sql(
        "SELECT a.k, sum(b.v) AS s FROM a, b WHERE a.k = b.k GROUP BY a.k WINDOW '100 ms'"
    ),
    "SQL, desc": lambda db: db.sql(
        "SELECT a.k, a.v FROM a, b WHERE a.k = b.k WITH PREFERENCE desc a.k WINDOW '100 ms' BUDGET 30 %"
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", ASKED)
def test_an_answer_is_let_go_when_nobody_has_it(db: Database, kind: str) -> None:
    answer = ASKED[kind](db)
    assert sum(len(batch) for batch in answer.batches())
    gone = ref(answer)
    del answer
    assert gone() is None
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    found = {f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage}
    assert not {each for each in found if each.startswith("nile.") and not each.startswith(WORDS)}


@pytest.mark.parametrize("kind", ASKED)
def test_an_answer_that_nobody_reads_is_let_go(db: Database, kind: str) -> None:
    """As one that is asked how many outputs there are, which needs none."""
    answer = ASKED[kind](db)
    gone = ref(answer)
    del answer
    assert gone() is None


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Database:
    """The same streams as files, with text: a megabyte of columns each."""
    db = nile.connect()
    for seed, name in enumerate("abc"):
        rng = np.random.default_rng(seed)
        ts = pa.array(np.arange(N) * 1_000_000).cast(pa.timestamp("ns"))
        path = tmp_path_factory.mktemp("files") / f"{name}.parquet"
        text = pa.array([f"{n:>300}" for n in rng.integers(0, 60, N)])
        parquet.write_table(pa.table({"ts": ts, "k": text, "v": rng.random(N)}), path, use_dictionary=False)
        db.register(name, path, time="ts")
    return db


@pytest.mark.parametrize("kind", [kind for kind in ASKED if kind != "weighted of three"])
def test_what_was_read_of_files_is_let_go_with_its_answer(files: Database, kind: str) -> None:
    """Also by generators that nobody began: these end what they hold as they are collected, so it is no garbage."""
    held = []
    for _ in range(4):
        for batch in ASKED[kind](files).batches():
            del batch
        ASKED[kind](files)  # which nobody reads
        for batch in ASKED[kind](files).batches():  # noqa: B007
            break  # which is read in part
        del batch
        held.append(pa.total_allocated_bytes())
    assert max(held[2:]) < held[1] + 500_000  # blocks for the next use are kept from the first times on


def test_batches_are_read_when_nobody_has_the_answer(db: Database) -> None:
    for kind in ("join", "ranges", "desc", "weighted, counted as found"):
        whole = [len(batch) for batch in ASKED[kind](db).batches()]
        batches = ASKED[kind](db).batches()  # they hold what they come from
        assert [len(batch) for batch in batches] == whole
