"""Random RSTREAMs, look-ups FOR SYSTEM_TIME and SAMPLEs that stand, with DuckDB as the judge."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from judge import fresh_duckdb
from live_world import SECOND, World
from sql_random import cell, query

import nile

Rows = Counter[tuple[Any, ...]]


def told(standing: Any) -> list[dict[str, Any]]:
    return [row for batch in standing.poll() for row in batch.to_pylist()]


def plain(row: dict[str, Any], *without: str) -> tuple[Any, ...]:
    return tuple(cell(value) for name, value in row.items() if name not in without)


def lived(world: World, rng: random.Random, changes: float = 0.0) -> int:
    """Push all there is, cut at random, the relation changed between pushes as often as `changes`; when it ended."""
    end = 2 + max([at for name in ("s1", "s2", "s3") for at in world.data[name].column("ts").to_pylist()], default=0)
    now = 0
    while now < end:
        step = rng.randrange(1, 25)
        world.push(now, now + step)
        now += step
        if changes and rng.random() < changes:
            world.change(now)
    return now


def rstream(seed: int) -> str | None:
    """What was wrong with RSTREAM of a random query: at each of its instants it is the relation, whole."""
    rng = random.Random(seed)
    made = query(rng, running=True)
    plain_ones = [alias for table, alias in made.inputs if table != "r" and alias not in made.forms]
    if made.whole is None and any(made.window(alias) is None for alias in plain_ones):
        made.whole = rng.choice([3, 10, 30])
    world = World(rng, made)
    window = "" if made.whole is None else f" WINDOW {made.whole}"
    text = f"RSTREAM ({made.nile().removesuffix(window)}){window}"
    try:
        standing = world.db.subscribe(text)
    except nile.NotYet:
        return None
    streams = {table for table, _ in made.inputs if table != "r"}
    first = min([at for name in streams for at in world.data[name].column("ts").to_pylist()], default=10**6)
    now = lived(world, rng, 0.4)
    world.db.close()
    states: dict[int, Rows] = {}
    for row in told(standing):
        states.setdefault(row["_ts"].value, Counter())[plain(row, "_ts")] += 1
    for ts in rng.sample(sorted(states), min(6, len(states))):
        wanted = world.wanted(ts / SECOND)
        if states[ts] != wanted:
            return f"{seed} at {ts}: {text}\n  {states[ts] - wanted}\n  {wanted - states[ts]}"
    for _ in range(4):
        instant = rng.randrange(2 * now) / 2
        last = max((ts for ts in states if ts <= instant * SECOND), default=None)
        wanted = world.wanted(instant)
        if wanted and instant >= first and (last is None or states[last] != wanted):
            return f"{seed}, last before {instant}: {text}\n  {last and states[last]}\n  {wanted}"
    return ""


def looked_up(seed: int) -> str | None:
    """What was wrong with a look-up of each tuple in the relation as it was at the tuple's own time."""
    rng = random.Random(seed)
    world = World(rng, query(rng, running=True))
    kind, more = rng.choice(["JOIN", "LEFT JOIN"]), rng.choice(["", " AND a.n > p.w", " AND p.w > 1"])
    where = rng.choice(["", " WHERE a.n > 0", " WHERE p.w IS NOT NULL", " WHERE a.k <> 'tea'"])
    told_of = rng.choice(["a.id, a.k, p.w", "a.id, a.n + p.w AS c", "p.k, a.id, a.v"])
    text = f"SELECT {told_of} FROM s1 a {kind} r{{}} p ON a.k = p.k{more}{where}"
    standing = world.db.subscribe(text.format(" FOR SYSTEM_TIME AS OF a.ts AS"))
    lived(world, rng, 0.6)
    world.db.close()
    wanted: Rows = Counter()
    begins = [at for at, _ in world.versions]
    for (begin, relation), until in zip(world.versions, [*begins[1:], float("inf")], strict=True):
        ts = world.data["s1"].column("ts").to_pylist()
        judge = fresh_duckdb()
        judge.register("s1", world.data["s1"].filter(pa.array([begin <= at < until for at in ts], pa.bool_())))
        judge.register("r", relation)
        wanted.update(tuple(map(cell, row)) for row in judge.execute(text.format("")).fetchall())
    found = Counter(plain(row, "_ts", "_sign") for row in told(standing))
    return "" if found == wanted else f"{seed}: {text}\n  {found - wanted}\n  {wanted - found}"


def sampled(seed: int) -> str | None:
    """What was wrong with a query of samples: DuckDB's over the tuples that the coins took, counts and sums scaled."""
    rng = random.Random(seed)
    world = World(rng, query(rng, running=True))
    shares, coins = [rng.choice([25, 50, 80]) for _ in range(2)], rng.randrange(100)
    window = rng.choice([3, 10, 30])
    behind = [f" SAMPLE ({share}) REPEATABLE ({coins})" for share in shares]
    if rng.random() < 0.5:
        scale = 100 / shares[0]
        text, plainly = f"FROM s1 a{behind[0]} WHERE a.n > -2 GROUP BY a.k", "FROM s1 a WHERE a.n > -2 GROUP BY a.k"
        names = ["s1"]
    else:
        scale = 100 / shares[0] * 100 / shares[1]
        text = f"FROM s1 a{behind[0]} JOIN s2 b{behind[1]} ON a.k = b.k GROUP BY a.k"
        plainly, names = "FROM s1 a JOIN s2 b ON a.k = b.k GROUP BY a.k", ["s1", "s2"]
    standing = world.db.subscribe(f"SELECT a.k, count(*) AS c, sum(a.n) AS t, max(a.n) AS m {text} WINDOW {window}",
                                  emit="changes")  # fmt: skip
    now = lived(world, rng)
    kept = {}
    for name, tail in zip(names, behind, strict=False):
        with nile.connect() as other:  # the same coins over the same numbers, all at once
            other.register(name, world.data[name], time="ts")
            taken = {row[0] for row in other.sql(f"SELECT id FROM {name}{tail}").fetchall()}
        ids = world.data[name].column("id").to_pylist()
        kept[name] = world.data[name].filter(pa.array([each in taken for each in ids], pa.bool_()))
    world.db.close()
    rows = told(standing)
    for instant in rng.sample(range(now), min(5, now)):
        judge = fresh_duckdb()
        for name, table in kept.items():
            ts = table.column("ts").to_pylist()
            judge.register(name, table.filter(pa.array([instant - window <= at <= instant for at in ts], pa.bool_())))
        asked = f"SELECT a.k, count(*) * {scale}, sum(a.n) * {scale}, max(a.n) {plainly}"
        wanted = Counter(tuple(cell(v if v is None or at in (0, 3) else float(v)) for at, v in enumerate(row))
                         for row in judge.execute(asked).fetchall())  # fmt: skip
        found: Rows = Counter()
        for row in rows:
            if row["_ts"].value <= instant * SECOND:
                found[plain(row, "_ts", "_sign")] += row["_sign"]
        if +found != wanted:
            return f"{seed} at {instant}: {text} WINDOW {window}\n  {+found - wanted}\n  {wanted - found}"
    return ""


CHECKS = [rstream, looked_up, sampled]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_random_streams_of_relations_look_ups_and_samples_are_right(check: Any) -> None:
    found = [check(seed) for seed in range(8)]
    assert [each for each in found if each] == []
    assert sum(each is None for each in found) < 3


@pytest.mark.long
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_five_hundred_of_each_are_right(check: Any) -> None:
    found = [check(seed) for seed in range(1_000, 1_500)]
    assert [each for each in found if each] == []
