"""What an answer within a budget finds in the CPU time it takes, beside what others find in that time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from nile.answers.join_answer import JoinAnswer
from nile.answers.join_query import JoinQuery
from nile.exact.state.lent import roomy
from nile.experiments.benchmarks.budgets.shapes import Streams
from nile.experiments.benchmarks.exact.streams import window_joins
from nile.operators.inputs.joining import Joinable
from nile.operators.strategies.counted import CountedJoin
from nile.operators.strategies.strategy_kernels import admit
from nile.preferences.budget import Budget
from nile.summaries.errors import BudgetError
from nile.summaries.hashing import key_words
from nile.summaries.heavy import duckdb, pa
from nile.summaries.key_types import is_hashed

__all__ = ["PREFERENCES", "Compared", "compared", "sampled"]

Array = np.ndarray[Any, Any]
PREFERENCES = ("desc", "asc", "weighted")
SHARES = (0.02, 0.1, 0.3, 0.6, 1.0)
"""Of the keys, or of the tuples, that the exact engine is given."""
SEEDS, BINS, CAP = 5, 100, 4
_HOPELESS = 20.0
"""Pairs of one key for each that lies in the window, from which on DuckDB is not asked without time buckets."""
_NOTHING = 1e-9
"""Of an error: what rounding leaves."""


class Compared(NamedTuple):
    """One judgement: the answer's figure, the best opponent's in the same CPU time, who that is, and how many times
    better the answer is (None: there is nothing to find, or to pay for).  cpu: seconds the answer took; way: how.
    """

    judged: str
    fraction: float
    way: str
    cpu: float
    own: float
    best: float
    opponent: str
    ratio: float | None

    def text(self) -> str:
        """It in words."""
        told = f"{self.judged}, {self.fraction:g}: {self.own:.4g} by {self.way} in {self.cpu:.3g} CPU s"
        ratio = "nothing to compare" if self.ratio is None else f"{self.ratio:.3g} times as good"
        return f"{told}; best {self.best:.4g}, {self.opponent}: {ratio}"


class _Truth:
    """The whole join: by left tuple its bin of keys, int64 [n]; pairs, and outliers; share of the pairs by bin."""

    def __init__(self, joined: Joinable) -> None:
        counted = CountedJoin(joined.exact)
        by_key = np.bincount(counted.key[counted.key >= 0], counted.matches[counted.key >= 0], counted.keys)
        paired = np.flatnonzero(by_key)
        bin_of_key = np.zeros(counted.keys, np.int64)
        bin_of_key[paired] = np.arange(paired.shape[0]) * BINS // max(1, paired.shape[0])
        self.bin_of = bin_of_key[joined.exact.left_code]
        self.bins = np.bincount(bin_of_key, by_key, BINS) / max(1.0, by_key.sum())
        self.pairs = counted.pairs
        self.outliers = int(counted.matches[(counted.matches > 0) & (counted.standing <= CAP)].sum())


class _Opponent(NamedTuple):
    """At each of SHARES, [shares]: CPU seconds, and what was found in them.

    least: what is found in no time; None: as much as in the least that was measured.
    """

    name: str
    cpu: list[float]
    found: list[float]
    least: float | None = None

    def within(self, seconds: float) -> float:
        """What it finds in so many CPU seconds: between two shares by a straight line."""
        return float(np.interp(seconds, np.maximum.accumulate(self.cpu), self.found, left=self._before(seconds)))

    def _before(self, seconds: float) -> float | None:
        """Of less time than was measured: in proportion, where nothing is found in none."""
        return None if self.least is None else self.least + seconds / self.cpu[0] * (self.found[0] - self.least)


def compared(streams: Streams, fractions: tuple[float, ...], rounds: int) -> list[Compared]:
    """By preference and fraction, medians of so many rounds."""
    query = streams.query.using(costs="machine")
    truth = _Truth(query.run().joined)
    told: list[Compared] = []
    if not truth.pairs:
        return told
    keys = _Opponent("exact on keys by hash", *_shares(query, rounds, lambda found: found / truth.pairs), 0.0)
    duck = _of_duckdb(streams, rounds, truth.pairs)
    rare = None
    if truth.outliers:
        outliers = query.prefer("asc", outlier_cap=CAP)
        rare = _Opponent(
            "outliers of keys by hash", *_shares(outliers, rounds, lambda found: found / truth.outliers), 0.0
        )
    dropping = {name: query.prefer("desc").using(method=name) for name in ("hash-drop", "hash-backlog")}
    for fraction in fractions:
        seconds, way, found = _asked(query.prefer("desc"), fraction, rounds)
        rivals = {
            keys.name: keys.within(seconds),
            duck.name: duck.within(seconds),
            "exact, stopped": median(_stopped(query, seconds, truth.pairs) for _ in range(rounds)),
        } | {name: _dropped(each, seconds) / truth.pairs for name, each in dropping.items()}
        told.append(_most("desc, recall", fraction, way, seconds, found / truth.pairs, rivals))
        if rare is not None:
            seconds, way, found = _asked(query.prefer("asc", outlier_cap=CAP), fraction, rounds)
            # Of the pairs of a share of the keys as many are outliers as of all pairs, in the mean.
            rivals = {rare.name: rare.within(seconds), duck.name: duck.within(seconds)}
            told.append(_most("asc, recall of outliers", fraction, way, seconds, found / truth.outliers, rivals))
    return told + list(_samples(query, truth, fractions, {keys.name: keys.cpu, duck.name: duck.cpu}, rounds))


def _dropped(query: JoinQuery, seconds: float) -> int:
    """Pairs that a method which drops tuples finds in time; none where the time is over before it saw all of them."""
    try:
        return _drained(query.run(Budget(seconds=seconds)))
    except BudgetError:
        return 0


def _most(judged: str, fraction: float, way: str, cpu: float, own: float, rivals: dict[str, float]) -> Compared:
    name = max(rivals, key=lambda each: rivals[each])
    ratio = own / rivals[name] if own and rivals[name] else None
    return Compared(judged, fraction, way, cpu, own, rivals[name], name, ratio)


def _samples(
    query: JoinQuery, truth: _Truth, fractions: tuple[float, ...], cpu: dict[str, list[float]], rounds: int
) -> Iterator[Compared]:
    """Samples judged by their histogram of keys and by their total.  cpu: of whoever joins keys by hash."""
    by_keys, by_coins = ([_errors(query, truth, share, coins) for share in SHARES] for coins in (False, True))
    coins = _shares(query, rounds, float, coins=True)[0]
    weighted = query.prefer("weighted")
    for fraction in fractions:
        seconds, way, found = _asked(weighted, fraction, rounds)
        if not found:
            continue
        own = np.array([_answered(truth, weighted.using(seed=seed).run(fraction)) for seed in range(SEEDS)])
        for at, judged in enumerate(("weighted, squared error by key", "weighted, squared error of the total")):
            rivals = {
                each.name: each.within(seconds)
                for each in (
                    *(_Opponent(name, took, [one[at] for one in by_keys]) for name, took in cpu.items()),
                    _Opponent("exact on tuples by coin", coins, [one[at] for one in by_coins]),
                )
            }
            name = min(rivals, key=lambda each: rivals[each])
            error = float(own[:, at].mean())
            ratio = max(rivals[name], _NOTHING) / max(error, _NOTHING)
            yield Compared(judged, fraction, way, seconds, error, rivals[name], name, ratio)


def _answered(truth: _Truth, answer: JoinAnswer) -> tuple[float, float]:
    """(squared error of an answer's histogram of keys, and of the total that it tells)."""
    bins = np.zeros(BINS)
    for (left, _), weight in answer.found_members():
        bins += np.bincount(truth.bin_of[left], weight, BINS)
    return _distance(truth, bins), float((answer.estimate.value / truth.pairs - 1.0) ** 2)


def _errors(query: JoinQuery, truth: _Truth, share: float, coins: bool) -> tuple[float, float]:
    """The same of the exact engine on some of the keys or tuples, the mean over seeds."""
    told = []
    for seed in range(SEEDS):
        inside = sampled(query.run().joined, share, seed, coins=coins)
        counted = CountedJoin(inside.exact)
        bin_of_key = np.zeros(counted.keys, np.int64)
        assert inside.left.rows is not None
        bin_of_key[inside.exact.left_code] = truth.bin_of[inside.left.rows]  # a key that has pairs has left tuples
        bins = np.bincount(bin_of_key[np.maximum(counted.key, 0)], counted.matches, BINS)
        stands = 1.0 / (share * share if coins else share)
        told.append((_distance(truth, bins), (stands * counted.pairs / truth.pairs - 1.0) ** 2))
    histogram, total = np.array(told).mean(axis=0)
    return float(histogram), float(total)


def _distance(truth: _Truth, bins: Array) -> float:
    total = float(bins.sum())
    return float(((bins / total - truth.bins) ** 2).sum()) if total else float((truth.bins**2).sum())


def _asked(query: JoinQuery, fraction: float, rounds: int) -> tuple[float, str, int]:
    """(CPU seconds from the call to the last batch, the way it ran, rows) of an answer within a fraction."""
    weighted = query.plan(fraction).preference == "weighted"

    def run() -> tuple[str, int]:
        answer = query.run(fraction)
        if weighted:
            _ = answer.estimate
        rows = _drained(answer)
        return next(line for line in answer.strategy.split("\n") if "*" in line).split("*")[1].split(":")[0], rows

    (way, rows), _ = _timed(run)
    return median(_timed(run)[1] for _ in range(rounds)), way.strip(), rows


def _shares(
    query: JoinQuery, rounds: int, worth: Callable[[float], float], *, coins: bool = False
) -> tuple[list[float], list[float]]:
    """(CPU seconds, what was found) of a whole answer over each of SHARES of the keys or tuples, over seeds."""
    cpu, found = [], []
    plan = query.plan()
    for share in SHARES:

        def run(seed: int, share: float = share) -> int:
            inside = sampled(query.run().joined, share, seed, coins=coins)
            return _drained(JoinAnswer(inside, plan, key="k"))

        turns = [_timed(partial(run, seed)) for seed in range(-1, max(rounds, SEEDS))]
        # Means of both: one key may have most pairs.
        rows, seconds = np.mean(turns[1:], axis=0).tolist()
        cpu.append(seconds)
        found.append(worth(rows))
    return cpu, found


def _of_duckdb(streams: Streams, rounds: int, pairs: int) -> _Opponent:
    """DuckDB on keys by its own hash, in the formulation that takes least CPU on some: read as Arrow batches."""
    window = streams.shape.window * 1_000_000_000
    with closing(duckdb.connect()) as connection:
        reads = []
        for name, source in zip("ab", streams.sources, strict=True):
            if streams.shape.source == "Parquet":
                connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{source}')")
            else:
                connection.register(name, source)
            reads.append(f"SELECT k, epoch_ns(ts) AS t FROM {name}")

        def run(form: str, share: float, seed: int) -> int:
            asked = [f"{read} WHERE hash(k, {seed}) < {int(share * 2.0**63)} * 2::HUGEINT" for read in reads]
            query = window_joins("a.k, a.t, b.t AS other", reads if share == 1.0 else asked, window)[form]
            return sum(len(batch) for batch in connection.sql(query).to_arrow_reader(1 << 16))

        alike = " JOIN ".join(f"(SELECT k, count(*) AS n FROM {name} GROUP BY k) AS {name}n" for name in "ab")
        [(of_one_key,)] = connection.sql(f"SELECT sum(an.n * bn.n) FROM {alike} USING (k)").fetchall()
        took: dict[str, float] = {}
        for form in window_joins("", reads, window):
            if form == "plain" and float(of_one_key or 0) > _HOPELESS * pairs:
                continue
            took[form] = min(_timed(partial(run, form, 0.3, 0))[1] for _ in range(2))
        form = min(took, key=lambda each: took[each])
        cpu, found = [], []
        for share in SHARES:
            turns = [_timed(partial(run, form, share, seed)) for seed in range(max(rounds, SEEDS))]
            rows, seconds = np.mean(turns, axis=0).tolist()
            cpu.append(seconds)
            found.append(rows / pairs)
    return _Opponent("DuckDB on keys by hash", cpu, found, 0.0)


def _stopped(query: JoinQuery, seconds: float, pairs: int) -> float:
    """The share of the pairs that the exact engine has found when its time is out: of a batch, in proportion."""
    found, before, began = 0.0, 0.0, time.process_time()
    for batch in query.run().batches():
        now = time.process_time() - began
        if now > seconds:
            found += len(batch) * max(0.0, seconds - before) / (now - before)
            break
        found, before = found + len(batch), now
    return found / pairs


def sampled(joined: Joinable, share: float, seed: int, *, coins: bool = False) -> Joinable:
    """Both streams of a join cut to the tuples whose keys hash into `share` of the key space; coins: to that share of
    the tuples, whatever their keys.
    """
    # By the same kernel as strategies admit by, but without a look at what the keys promise.
    whole, none = 1 << 31, np.zeros(2, np.uint8)
    part = round(share * whole)
    level, coin = (np.array([rate], np.uint64) for rate in ((whole, part) if coins else (part, whole)))
    room = np.empty(1024, np.uint64)
    sides = []
    for side, stream in enumerate(joined.streams):
        words, valid = key_words(stream.key)
        n = len(stream)
        place, ts, word = (roomy(n + 1) for _ in range(3))
        came = roomy(n + 1, np.uint8)
        tossed = int(np.random.default_rng([seed + 1, side]).integers(1 << 62))
        m = admit(words, valid, stream.ts, seed, 63, none, level, coin, tossed, room, place, ts, word, came)
        at = place[:m]
        key = stream.key.take(pa.array(at)) if is_hashed(stream.key.type) else pa.chunked_array([pa.array(word[:m])])
        sides.append(replace(stream, ts=ts[:m], key=key, carried=None, rows=at))
    return Joinable(sides[0], sides[1], joined.window)


def _drained(answer: Any) -> int:
    return sum(len(batch) for batch in answer.batches())


def _timed(run: Callable[[], Any]) -> tuple[Any, float]:
    began = time.process_time()
    out = run()
    return out, time.process_time() - began
