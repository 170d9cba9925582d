"""Key hashing with a secret: the same answers, estimates that nobody can spoil, stores that ask for it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from test_history_join import brute, found, history, side

import nile
from nile.experiments.cli import main
from nile.experiments.faults.collisions import colliding
from nile.operators.history.desc import DescendingJoin
from nile.operators.history.weighted import WeightedJoin
from nile.pyramid.disk.directory import StoreDirectory
from nile.summaries.errors import ConfigError
from nile.summaries.hashing import KeyHasher

SECRET = bytes(range(32))
SCHEMA = [("t", pa.int64()), ("k", pa.binary()), ("n", pa.int64()), ("w", pa.string())]


def rows(seed: int, n: int = 600) -> pa.Table:
    """k: keys that all have one hash under the hashing that everybody knows; w: the same as text."""
    rng = np.random.default_rng(seed)
    keys = colliding(77, list(range(1, 201)))
    chosen = [keys[i] for i in (200 * rng.random(n) ** 3).astype(int).tolist()]
    columns = [np.arange(n), pa.array(chosen, pa.binary()), rng.integers(0, 9, n), [key.hex() for key in chosen]]
    return pa.table(columns, schema=pa.schema(SCHEMA))


def filled(secret: bytes | None) -> nile.Database:
    db = nile.connect(hash_secret=secret)
    for seed, name in enumerate("lrz"):
        db.register(name, rows(seed), time="t")
    return db


EXACT = [
    "SELECT k, count(*) AS c, sum(n) AS s FROM l GROUP BY k ORDER BY c DESC, s",
    "SELECT DISTINCT n FROM l WHERE n > 3 ORDER BY n",
    "SELECT l.t, r.t AS other FROM l, r WHERE l.w = r.w AND l.n < 2 WINDOW 40",
    "SELECT l.t, r.t AS b, z.t AS c FROM l, r, z WHERE l.w = r.w AND r.w = z.w WINDOW 9",
    "SELECT k, count(*) AS c FROM l [RANGE 30] GROUP BY k",
    "SELECT DISTINCT w FROM l ORDER BY w",
]


@pytest.mark.parametrize("text", EXACT)
def test_exact_answers_are_the_same_with_a_secret(text: str) -> None:
    assert filled(SECRET).sql(text).fetchall() == filled(None).sql(text).fetchall()


@pytest.mark.parametrize("guide", ["countsketch", "directory"])
@pytest.mark.parametrize("preference", ["desc", "weighted", "asc"])
def test_at_full_budget_a_preference_finds_the_exact_pairs(preference: str, guide: str) -> None:
    db = filled(SECRET)
    query = db.join("l", "r", on="k", window=40)
    exact = query.run().pairs()
    found = query.prefer(preference).guided_by(guide).run(1.0).pairs()
    must = set(zip(exact.left.tolist(), exact.right.tolist(), strict=True))
    got = set(zip(found.left.tolist(), found.right.tolist(), strict=True))
    assert got <= must
    if preference != "asc":
        assert got == must


@pytest.mark.parametrize(
    "ask",
    [
        lambda db: db.join("l", "r", on="k", window=40).prefer("weighted").run(0.3).pairs().left.shape[0],
        lambda db: db.join("l", "r", "z", on="k", window=9).prefer("desc").run(0.3).completions()[0].shape[0],
        lambda db: len(db.sql("SELECT t FROM l WHERE n > 2 WITH PREFERENCE desc n BUDGET 40 %").fetchall()),
        lambda db: len(db.sql("SELECT n, count(*) AS c FROM l GROUP BY n BUDGET 40 %").fetchall()),
    ],
)
def test_approximate_queries_find_something_with_a_secret(ask: Any) -> None:
    assert ask(filled(SECRET)) > 0


def test_a_summary_tells_apart_keys_that_were_made_to_collide() -> None:
    def worst(secret: bytes | None) -> float:
        with filled(secret) as db:
            manager = db.summarize("l", "k", granularity=1_000)
            told = np.asarray(manager.estimate(manager.keys.hashes()).value)
            counts = db.sql("SELECT k, count(*) AS c FROM l GROUP BY k").to_arrow()
            truth = dict(zip(counts["k"].to_pylist(), counts["c"].to_pylist(), strict=True))
            must = np.array([truth[key] for key in manager.keys.values().to_pylist()])
            return float(np.abs(told - must).max())

    assert worst(SECRET) <= 6 * (float(np.square(np.unique(rows(0)["k"], return_counts=True)[1]).sum()) / 1_024) ** 0.5
    assert worst(None) > 400  # the control


def pushed(db: nile.Database, name: str = "s", upto: int = 3) -> None:
    for seed in range(upto):
        part = rows(seed)
        shifted = part.set_column(0, "t", pa.array(np.asarray(part["t"]) + 600 * seed))
        db.push(name, shifted)


def begun(path: Path | None, secret: bytes | None) -> nile.Database:
    db = nile.connect(path, hash_secret=secret)
    for name in "su":
        db.stream(name, SCHEMA, time="t")
    db.sql("CREATE SUMMARY z ON s (k) WITH GRANULARITY 100 AND COLLAPSE (4, 3)")
    return db


def test_a_store_goes_on_with_its_secret_and_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    whole = begun(None, SECRET)
    pushed(whole)
    with begun(tmp_path / "s", SECRET) as db:
        pushed(db, upto=2)
    with nile.connect(tmp_path / "s", hash_secret=SECRET) as db:
        part = rows(2)
        db.push("s", part.set_column(0, "t", pa.array(np.asarray(part["t"]) + 1_200)))
        mine, theirs = db.summary("z"), whole.summary("z")
        assert np.array_equal(mine.keys.hashes(), theirs.keys.hashes())
        assert np.array_equal(mine.store.side.counters, theirs.store.side.counters)
        assert db.sql(EXACT[0].replace("FROM l", "FROM s")).fetchall() == (
            whole.sql(EXACT[0].replace("FROM l", "FROM s")).fetchall()
        )


@pytest.mark.parametrize("preference", ["desc", "weighted", "asc"])
def test_history_on_disk_is_looked_up_with_the_secret(preference: str, tmp_path: Path) -> None:
    text = f"SELECT a.t, b.t AS other FROM s a, u b WHERE a.w = b.w AND a.t >= 1700 WITH PREFERENCE {preference} a.w"

    def pairs(db: nile.Database) -> list[Any]:
        *_, last = db.sql(text).progress(every="1 s")
        return sorted(last.to_arrow().select(["t", "other"]).to_pylist(), key=lambda row: (row["t"], row["other"]))

    memory = begun(None, None)
    for name in "su":
        pushed(memory, name)
    with begun(tmp_path / "s", SECRET) as db:
        for name in "su":
            pushed(db, name)
    with nile.connect(tmp_path / "s", hash_secret=SECRET, memory="16MB") as db:
        assert pairs(db) == pairs(memory)


@pytest.mark.parametrize("operator", [DescendingJoin, WeightedJoin])
def test_key_indices_in_files_are_asked_with_the_secret(operator: Any, tmp_path: Path) -> None:
    left, right = (rows(seed, 1_500)["w"].to_pylist() for seed in (8, 9))
    hasher = KeyHasher.keyed(SECRET)
    with StoreDirectory.open(tmp_path) as directory:
        other = history(right, "r", segment=256, directory=directory, memory=1, hasher=hasher)
        other.settle()
        assert {index.tier for index in other.indices("key")} > {"hot"}
        join = operator(side(history(left, hasher=hasher)), side(other))
        assert found(join) == brute(left, right, (0, len(left)), (0, len(right)))


def test_a_standing_approximate_join_goes_on_with_the_secret(tmp_path: Path) -> None:
    text = "SELECT a.t, b.t AS other FROM s a, u b WHERE a.w = b.w WITH PREFERENCE desc a.w WINDOW 50 BUDGET 60 %"

    def run(path: Path | None, stop: bool) -> list[Any]:
        db = begun(path, SECRET)
        query = db.subscribe(text, name="q")
        out: list[Any] = []
        for seed in range(4):
            part = rows(seed)
            for name in "su":
                db.push(name, part.set_column(0, "t", pa.array(np.asarray(part["t"]) + 600 * seed)))
            out += [row for batch in query.poll() for row in batch.to_pylist()]
            if stop and seed == 1:
                db.close()
                db = nile.connect(path, hash_secret=SECRET)
                query = db.subscription("q")
        db.close()
        return out

    whole = run(None, False)
    assert whole
    assert run(tmp_path / "s", True) == whole


def test_a_store_opens_with_its_own_secret_only_and_does_not_hold_it(tmp_path: Path) -> None:
    with begun(tmp_path / "with", SECRET) as db:
        pushed(db)
    with begun(tmp_path / "without", None) as db:
        pushed(db)
    for secret, got in ((None, "none"), (SECRET[::-1], "another")):
        with pytest.raises(ConfigError, match=f"needed the secret that this store was made with; got {got};"):
            nile.connect(tmp_path / "with", hash_secret=secret)
    with pytest.raises(ConfigError, match="needed none, since this store hashes keys without one; got one; leave it"):
        nile.connect(tmp_path / "without", hash_secret=SECRET)
    nile.connect(tmp_path / "with", hash_secret=SECRET, read_only=True).close()
    for file in (tmp_path / "with").rglob("*"):
        if file.is_file():
            held = file.read_bytes()
            assert SECRET not in held
            assert SECRET.hex().encode() not in held
    told = CliRunner().invoke(main, ["store", "info", str(tmp_path / "with")]).output
    assert re.search(r"^hashing +with a hash_secret, whose check is [0-9a-f]{16}$", told, re.MULTILINE)
    assert "hashing" not in CliRunner().invoke(main, ["store", "info", str(tmp_path / "without")]).output


@pytest.mark.parametrize(("secret", "got"), [("x" * 32, "got str"), (b"x" * 15, "got 15"), (b"x" * 65, "got 65")])
def test_a_secret_that_is_none_is_refused(secret: Any, got: str) -> None:
    with pytest.raises(ConfigError, match=rf"16 to 64 bytes; {got}; use secrets.token_bytes"):
        nile.connect(hash_secret=secret)
