"""What a strategy finds in the CPU time it takes, beside the exact engine on hashed keys, or stopped, in that time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from nile.answers.join_answer import JoinAnswer
from nile.engine.database import Database
from nile.experiments.benchmarks.harness import Measure, Result, benchmark
from nile.operators.inputs.joining import Joinable
from nile.operators.strategies.counted import CountedJoin
from nile.operators.strategies.strategy_kernels import admit
from nile.summaries.hashing import key_words
from nile.summaries.heavy import pa
from nile.summaries.key_types import is_hashed

__all__ = ["sampled", "strategies"]

Array = np.ndarray[Any, Any]
TITLE = "what strategies find in the CPU time they take, beside the exact engine on hashed keys in the same time"
TUPLES = 100_000
MATCHES = (0.2, 1.0, 16.0, 480.0)
SKEWS = (0.5, 0.8, 1.23)
FRACTIONS = (0.1, 0.3)
SHARES = (0.02, 0.1, 0.2, 0.4, 0.7, 1.0)
"""Of the keys, that the exact engine is given."""
SEEDS, ROUNDS, BINS = 5, 3, 100
_KEYS = (20_000, 2_000, 200, 100)
_NOTHING = 1e-9  # of a squared error: what rounding leaves
_GAP = 1_000_000  # ns between tuples of a stream


class Cell(NamedTuple):
    """Two streams, and what is true of their join: the key and the outliers of its pairs."""

    db: Database
    window: float
    joined: Joinable
    counted: CountedJoin
    exact: float  # CPU seconds
    bins: Array  # share of the pairs by bin of keys, float64 [BINS]
    bin_of: Array  # of each left tuple, int64


@benchmark("strategies", TITLE)
def strategies() -> Result:
    """A grid of matches per tuple and skew; by fraction and preference the median of three runs."""
    rows: list[dict[str, Any]] = []
    for matches in MATCHES:
        for skew in SKEWS:
            cell = _cell(matches, skew)
            hashed = [_hashed(cell, share) for share in SHARES]
            for fraction in FRACTIONS:
                for preference in ("desc", "asc", "weighted"):
                    row = {"matches": matches, "skew": skew, "fraction": fraction, "preference": preference}
                    rows.append(row | _against(cell, preference, fraction, hashed))
    measures = [
        Measure(
            f"{preference}: {TOLD[preference]}, worst cell", min(ratios), "times", 1.0,
            low=min(ratios), high=max(ratios), about=f"median {median(ratios):.3g}; {sum(r >= 1 for r in ratios)} of "
            f"{len(ratios)} cells at 1 or above",
        )
        for preference in TOLD
        for ratios in [[row["ratio"] for row in rows if row["preference"] == preference and row["ratio"] is not None]]
    ]  # fmt: skip
    return Result(
        name="strategies", title=TITLE, unit="tuples", work=2 * TUPLES, timings=(), measures=tuple(measures),
        notes=(
            "opponents get the CPU time that the strategy took: the exact engine on hashed keys (interpolated between "
            f"{len(SHARES)} shares of the keys), and the exact engine stopped when its time is out",
            "cells in which a fraction pays for no pair tell how many there are, and are left out",
        ),
        rows=tuple(rows),
    )  # fmt: skip


TOLD = {
    "desc": "recall, over the best opponent's",
    "asc": "recall of outliers, over the best opponent's",
    "weighted": "the best opponent's squared error of the histogram of keys, over its own",
}


def _cell(matches: float, skew: float) -> Cell:
    for keys in _KEYS:
        share = 1.0 / np.arange(1, keys + 1) ** skew
        share /= share.sum()
        whole = TUPLES * float(share @ share)
        if whole >= 1.5 * matches:
            break
    window = TUPLES * min(1.0, 0.5 * matches / whole) * _GAP / 1e9
    names = np.random.default_rng(5).permutation(keys)
    db = Database()
    for seed, name in enumerate("ab"):
        key = names[np.random.default_rng(seed).choice(keys, TUPLES, p=share)]
        ts = pa.array(np.arange(TUPLES) * _GAP).cast(pa.timestamp("ns"))
        db.register(name, pa.table({"ts": ts, "k": pa.array(key)}), time="ts")
    query = db.join("a", "b", on="k", window=window)
    _drained(query.run())
    exact = median(_timed(lambda: _drained(query.run()))[0] for _ in range(ROUNDS))
    joined = query.run().joined
    counted = CountedJoin(joined.exact)
    by_key = np.bincount(counted.key, counted.matches, counted.keys)
    column = joined.left.key.to_numpy()
    order = np.unique(column)  # the keys of the exact answer, in their order
    code = np.full(order.shape[0], -1, np.int64)
    code[np.searchsorted(order, column)] = joined.exact.left_code
    paired = by_key[code] > 0
    bin_of_key = np.zeros(order.shape[0], np.int64)
    bin_of_key[paired] = np.arange(int(paired.sum())) * BINS // max(1, int(paired.sum()))
    bins = np.bincount(bin_of_key[paired], by_key[code][paired], BINS)
    return Cell(db, window, joined, counted, exact, bins / bins.sum(), bin_of_key[np.searchsorted(order, column)])


def _asked(cell: Cell, preference: str, fraction: float, seed: int = 0) -> JoinAnswer:
    query = cell.db.join("a", "b", on="k", window=cell.window).prefer(preference)
    return query.using(strategy="auto", seed=seed).run(fraction)


def _against(cell: Cell, preference: str, fraction: float, hashed: list[dict[str, float]]) -> dict[str, Any]:
    _drained(_asked(cell, preference, fraction))
    seconds = median(_timed(lambda: _drained(_asked(cell, preference, fraction)))[0] for _ in range(ROUNDS))
    answer = _asked(cell, preference, fraction)
    found = _drained(answer)
    told: dict[str, Any] = {"cpu": seconds / cell.exact, "found": found, "ratio": None}
    told["way"] = next(line for line in answer.strategy.split("\n") if "*" in line).split("*")[1].split(":")[0].strip()
    if not found:
        return told
    at = partial(np.interp, seconds, [each["cpu"] for each in hashed])
    stopped = median(_stopped(cell, seconds) for _ in range(ROUNDS))
    if preference == "weighted":
        own = float(np.mean([_error(cell, _asked(cell, preference, fraction, seed)) for seed in range(SEEDS)]))
        best = float(at([each["error"] for each in hashed]))
        return told | {"quality": own, "best": best, "ratio": best / max(own, _NOTHING)}
    every = _outliers(cell.counted) if preference == "asc" else cell.counted.pairs
    if not every:
        return told
    best = max(float(at([each["outliers" if preference == "asc" else "recall"] for each in hashed])), stopped)
    return told | {"quality": found / every, "best": best, "ratio": found / every / best}


def _hashed(cell: Cell, share: float) -> dict[str, float]:
    """The exact engine on a share of the keys by hash: CPU seconds, recall of both kinds, error of the histogram."""

    def run() -> int:
        joined = cell.db.join("a", "b", on="k", window=cell.window).run().joined
        return _drained_joined(cell, sampled(joined, share, 0))

    found = run()
    seconds = median(_timed(run)[0] for _ in range(ROUNDS))
    errors = []
    for seed in range(SEEDS):
        inside = sampled(cell.joined, share, seed)
        counted = CountedJoin(inside.exact)
        left = cell.joined.left
        rows = inside.left.rows
        assert rows is not None
        pairs = np.zeros(len(left))
        by_key = np.bincount(counted.key, counted.matches, counted.keys)
        each = np.bincount(inside.exact.left_code, minlength=counted.keys)
        pairs[rows] = (by_key / np.maximum(1, each))[inside.exact.left_code]
        errors.append(_distance(cell, np.bincount(cell.bin_of, pairs, BINS)))
    within, whole = (_outliers(each) for each in (CountedJoin(sampled(cell.joined, share, 0).exact), cell.counted))
    return {
        "cpu": seconds,
        "recall": found / cell.counted.pairs,
        "outliers": within / max(1, whole),
        "error": max(_NOTHING, float(np.mean(errors))),
    }


def _stopped(cell: Cell, seconds: float) -> float:
    """The share of the pairs that the exact engine has found when its time is out: of a batch, in proportion."""
    found, before, began = 0.0, 0.0, time.process_time()
    for batch in cell.db.join("a", "b", on="k", window=cell.window).run().batches():
        now = time.process_time() - began
        if now > seconds:
            found += len(batch) * max(0.0, seconds - before) / (now - before)
            break
        found, before = found + len(batch), now
    return found / cell.counted.pairs


def _outliers(counted: CountedJoin) -> int:
    return int(counted.matches[(counted.matches > 0) & (counted.standing <= 4)].sum())


def sampled(joined: Joinable, share: float, seed: int) -> Joinable:
    """Both streams of a join cut to the tuples whose keys hash into `share` of the key space."""
    # By the same kernel as strategies admit by, but without a look at what the keys promise.
    one, none = np.array([1 << 31], np.uint64), np.zeros(2, np.uint8)
    below = np.array([round(share * (1 << 31))], np.uint64)
    sides = []
    for stream in joined.streams:
        words, valid = key_words(stream.key)
        n = len(stream)
        place, ts, word = (np.empty(n + 1, np.int64) for _ in range(3))
        m = admit(words, valid, stream.ts, seed, 63, none, below, one, 0, place, ts, word, np.empty(n + 1, np.uint8))
        at = place[:m]
        key = stream.key.take(pa.array(at)) if is_hashed(stream.key.type) else pa.chunked_array([pa.array(word[:m])])
        sides.append(replace(stream, ts=ts[:m], key=key, carried=None, rows=at))
    return Joinable(sides[0], sides[1], joined.window)


def _drained_joined(cell: Cell, joined: Joinable) -> int:
    plan = cell.db.join("a", "b", on="k", window=cell.window).plan()
    return _drained(JoinAnswer(joined, plan, key="k"))


def _error(cell: Cell, answer: JoinAnswer) -> float:
    bins = np.zeros(BINS)
    for (left, _), weight in answer.found_members():
        bins += np.bincount(cell.bin_of[left], weight, BINS)
    return _distance(cell, bins)


def _distance(cell: Cell, bins: Array) -> float:
    total = float(bins.sum())
    return float(((bins / total - cell.bins) ** 2).sum()) if total else float((cell.bins**2).sum())


def _drained(answer: JoinAnswer) -> int:
    return sum(len(batch) for batch in answer.batches())


def _timed(run: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    out = run()
    return time.process_time() - began, out
