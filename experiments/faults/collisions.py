"""Keys made to collide by somebody who knows the hash: no wrong output, and with a secret no wrong estimate."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.engine.database import Database
from nile.experiments.faults.fault import Fault, expect, generator
from nile.summaries.countsketch import CountSketch
from nile.summaries.hashing import PUBLIC, SEED, KeyHasher, hash_keys
from nile.summaries.heavy import pa

__all__ = ["FAULT", "colliding"]

_NAME = "collisions"
_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
_F1, _F2 = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53
_WINDOW = 15


def attempt(seed: int) -> None:
    """Colliding keys are joined, grouped and counted; the hasher of untrusted keys has a secret that nobody knows."""
    rng = generator(_NAME, seed)
    secret = rng.bytes(32)
    _outputs(rng, secret)
    _check(rng, KeyHasher.keyed(secret))


def control(seed: int) -> None:
    """The same estimates of the hasher whose seed everybody knows."""
    _check(generator(_NAME, seed), KeyHasher())


def colliding(target: int, halves: list[int]) -> list[bytes]:
    """Byte strings of 16 bytes whose hash is `target` under the fixed seed: one for each number below 2**64.

    MurmurHash3 x64-128 backwards: its last step adds two finalised words, of which one is free, and all the rest can
    be undone.
    """
    seed = SEED & 0xFFFFFFFF
    out = []
    for free in halves:
        h1, h2 = _unfinal(free), _unfinal((target - free) & _MASK)
        h2 = (h2 - h1) & _MASK
        h1 = (h1 - h2) & _MASK
        h1, h2 = h1 ^ 16, h2 ^ 16
        k2 = _rotated(((((h2 - 0x38495AB5) * pow(5, -1, 1 << 64)) & _MASK) - h1) & _MASK, 33) ^ seed
        k1 = _rotated(((((h1 - 0x52DCE729) * pow(5, -1, 1 << 64)) & _MASK) - seed) & _MASK, 37) ^ seed
        k1 = _rotated((k1 * pow(_C2, -1, 1 << 64)) & _MASK, 33) * pow(_C1, -1, 1 << 64) & _MASK
        k2 = _rotated((k2 * pow(_C1, -1, 1 << 64)) & _MASK, 31) * pow(_C2, -1, 1 << 64) & _MASK
        out.append(k1.to_bytes(8, "little") + k2.to_bytes(8, "little"))
    return out


def _unfinal(k: int) -> int:
    k ^= k >> 33
    k = k * pow(_F2, -1, 1 << 64) & _MASK
    k ^= k >> 33
    k = k * pow(_F1, -1, 1 << 64) & _MASK
    return k ^ (k >> 33)


def _rotated(x: int, by: int) -> int:
    return ((x << by) | (x >> (64 - by))) & _MASK


def _crafted(rng: np.random.Generator, n: int) -> list[bytes]:
    target = int(rng.integers(0, 1 << 64, dtype=np.uint64))
    return colliding(target, [int(x) for x in rng.integers(0, 1 << 64, n, np.uint64)])


def _check(rng: np.random.Generator, hasher: KeyHasher) -> None:
    """Of many keys, each once, a sketch says at most its bound more than once."""
    keys = _crafted(rng, 400)
    hashes = hash_keys(pa.array(keys, pa.binary()), hasher)
    sketch = CountSketch(5, 256)
    sketch.summarize(hashes)
    error = float(np.abs(np.asarray(sketch.estimate(hashes).value) - 1.0).max())
    bound = 6.0 * (len(keys) / sketch.columns) ** 0.5
    expect(error <= bound, f"an estimate is off by {error:g}, at most {bound:g} was promised")
    with Database(hasher=hasher) as db:
        db.register("s", pa.table({"t": range(len(keys)), "k": pa.array(keys, pa.binary())}), time="t")
        summary = db.summarize("s", "k", granularity=len(keys), columns=sketch.columns // 16, buckets=16)
        told = np.asarray(summary.estimate(summary.keys.hashes()).value)
        error = float(np.abs(told - 1.0).max())
        expect(error <= bound, f"an estimate of a summary is off by {error:g}, at most {bound:g} was promised")


def _outputs(rng: np.random.Generator, secret: bytes) -> None:
    """A join and groups: hashes that are equal never make keys equal."""
    keys = _crafted(rng, 12)
    sides = []
    for _ in range(2):
        n = int(rng.integers(20, 60))
        sides.append((np.sort(rng.integers(0, 100, n)), [keys[i] for i in rng.integers(0, len(keys), n).tolist()]))
    hashes = hash_keys(pa.array(keys, pa.binary()))
    expect(len(set(hashes.tolist())) == 1, "the crafted keys do not collide")
    (lt, lk), (rt, rk) = sides
    must = {
        (i, j) for i, a in enumerate(lk) for j, b in enumerate(rk) if a == b and abs(int(lt[i]) - int(rt[j])) <= _WINDOW
    }
    with Database(hasher=KeyHasher.keyed(secret) if rng.random() < 0.5 else PUBLIC) as db:
        for name, (at, key) in zip("lr", sides, strict=True):
            db.register(name, pa.table({"t": at, "k": pa.array(key, pa.binary())}), time="t")
        query = db.join("l", "r", on="k", window=_WINDOW)
        for asked in (
            query,
            query.prefer("desc").guided_by("countsketch"),
            query.prefer("desc").guided_by("directory"),
        ):
            found = _pairs(asked.run(1.0))
            expect(found == must, f"{len(found ^ must)} pairs are wrong")
        found = _pairs(query.prefer("desc").guided_by("countsketch").run(0.3))
        expect(found <= must, "pairs that are not in the exact answer")
        grouped = dict(db.sql("SELECT k, count(*) AS n FROM l GROUP BY k").fetchall())
        expect(grouped == {key: lk.count(key) for key in set(lk)}, "groups of keys that collide are wrong")


def _pairs(answer: Any) -> set[tuple[int, int]]:
    table = answer.to_arrow()
    return set(zip(table["left_ordinal"].to_pylist(), table["right_ordinal"].to_pylist(), strict=True))


FAULT = Fault(
    _NAME, "hash collisions made by somebody who knows the code, not the secret",
    "no wrong output; estimates within their bound", attempt, control, full=1_000, small=30,
)  # fmt: skip
