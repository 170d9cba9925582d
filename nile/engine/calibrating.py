"""What each step of a strategy costs on this machine, measured through the code that queries run: `nile calibrate`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from nile.engine import trials
from nile.engine.calibrating_answers import calibrated_answers
from nile.engine.database import Database
from nile.engine.trials import asked, column, cpu_of, database, exact
from nile.exact.join.chain import encode, window_codes
from nile.exact.join.dense import dense_codes
from nile.exact.join.listed import Lists
from nile.exact.join.shared import in_all
from nile.operators.inputs.joining import Joinable, load_stream
from nile.operators.strategies.admitted import Admission
from nile.operators.strategies.by_key import KeyOutliers, KeyPairs
from nile.operators.strategies.forecast import Work, best_keys, sampled_keys
from nile.operators.strategies.looking import Look
from nile.operators.strategies.prices import PRICES, Curve, Prices, along
from nile.operators.strategies.slots import Kinds
from nile.operators.strategies.telling import by_stratum, told
from nile.preferences.budget import Budget
from nile.summaries.hashing import key_words
from nile.summaries.heavy import pa

__all__ = ["calibrated"]

Array = np.ndarray[Any, Any]
_KNOTS = (8, 14, 17, 20)
_DISTINCT = (10, 14, 17, 20)
"""Binary logarithms of distinct keys, where they are joined and where they are coded."""
_MATCHES = (0, 1, 3, 5, 8)
"""Binary logarithms of pairs per tuple."""
_CAP = 4
"""Of outliers."""
_DRAWN, _HARDLY = (0, 2, 4, 6), 1e-6
"""Binary logarithms of pairs that are drawn of eight tuples, and of all pairs, a share of which hardly one is."""
_NAMED, _WITHIN, _PARTNERS = (0, 1, 3, 6), (13, 14, 16, 17, 18, 20), 8
"""Of pairs per tuple whose keys are text; of tuples in a window, and pairs per tuple there."""
_STREAM = (14, 17, 20)
"""Of tuples of a stream whose columns are handed out."""


def calibrated(say: Callable[[str], None]) -> Prices:
    """The prices of this machine: of each step the best of five turns, by CPU time of all threads.  Some 25 s.

    say: is told each step before it is measured.
    """
    found: dict[str, Any] = {}
    say("reading, looking and admitting")
    query = database(64, 8).join("a", "b", on="k", window=1.0)
    begin = float(cpu_of(lambda: asked(query)))
    found["begin"] = float(cpu_of(lambda: asked(query.prefer("weighted").using(costs="machine"), 0.5)))
    found |= _passes(database(trials.TUPLES, 1 << 16), begin)
    found |= _files()
    say("keys as joins take them")
    numbers, texts = _keys(trials.TUPLES, 1 << 16, text=False), _keys(trials.TUPLES, 1 << 16, text=True)
    tuples = 2 * trials.TUPLES
    found["code"] = cpu_of(lambda: window_codes(numbers)) / tuples
    found["words"] = cpu_of(lambda: [key_words(column) for column in texts]) / tuples
    few = pa.array(np.arange(0, trials.TUPLES, 16))
    found["taken"] = cpu_of(lambda: [key_words(column.take(few)) for column in texts]) / (2 * len(few))
    found["text"] = (
        cpu_of(lambda: [column.take(pa.array(np.arange(0, trials.TUPLES, 2))) for column in texts]) / trials.TUPLES
    )
    found["encode"] = _curve(_DISTINCT, lambda keys: _keys(_wide(keys), keys, text=True), _encoded)
    found["dense"] = _curve(_DISTINCT, lambda keys: _spread(_wide(keys), keys), dense_codes)
    far_apart = [column + side for side, column in enumerate(_spread(trials.TUPLES, 1 << 20))]
    found["sift"] = cpu_of(lambda: in_all(far_apart, 1 << 62)) / tuples
    say("joining and counting, by the number of keys")
    found["join"] = _curve(_KNOTS, lambda keys: _coded(_wide(keys), keys), _listed)
    found["count"] = _curve(_KNOTS, lambda keys: _coded(_wide(keys), keys), _counted)
    found["list"] = _curve(_KNOTS, lambda keys: _coded(_wide(keys), keys), _by_key)
    alone = database(2 * trials.TUPLES, 1 << 16).join("a", "b", on="k", window=1e-9)
    found["chain"] = max(trials.LEAST, (cpu_of(lambda: asked(alone)) - begin) / (2 * tuples) - found["code"])
    say("partners and pairs")
    found |= _pairs(along(found["join"], 1 << 12))
    samples = _samples()
    found |= _handed()
    found |= samples | {"keyed": samples["keyed"] + found["keyed"][1:]}
    found["named"], found["far"] = _named(), _far()
    number, text = (_a_pair(trials.TUPLES >> 3, 16, 512, text=each, by_key=True) for each in (False, True))
    found["repeat"] = max(trials.LEAST, text - number)
    say("several streams, and aggregates")
    found |= calibrated_answers()
    return replace(PRICES, **found)


def _wide(keys: int) -> int:
    return max(trials.TUPLES, keys)


def _keys(n: int, keys: int, *, text: bool) -> tuple[pa.Array, pa.Array]:
    return column(n, keys, 1, text=text), column(n, keys, 2, text=text)


def _spread(n: int, keys: int) -> list[Array]:
    """Numbers far apart, of two streams."""
    return [column.to_numpy() << 32 for column in _keys(n, keys, text=False)]


def _joinable(db: Database, window: int) -> Joinable:
    left, right = (load_stream(db._names.manager(name, "k", ())) for name in "ab")
    return Joinable(left, right, window)


def _coded(n: int, keys: int) -> Joinable:
    """Two streams in a window of hardly a tuple, encoded."""
    joined = _joinable(database(n, keys), trials.GAP)
    assert joined.exact.keys
    return joined


def _listed(joined: Joinable) -> int:
    exact, window = joined.exact, -1 if joined.window is None else joined.window
    lists = Lists((exact.left_ts, exact.right_ts), (exact.left_code, exact.right_code), window, exact.keys, threads=1)
    return sum(block.shape[0] for block in lists.pairs())


def _lists(joined: Joinable) -> tuple[Lists, tuple[Array, Array]]:
    exact = joined.exact
    ts = exact.left_ts, exact.right_ts
    return Lists(ts, (exact.left_code, exact.right_code), -1, exact.keys, threads=1), ts


def _by_key(joined: Joinable) -> KeyPairs:
    return KeyPairs(*_lists(joined), joined.window, joined.left_keys)


def _counted(joined: Joinable) -> int:
    return KeyOutliers(*_lists(joined), joined.window, joined.left_keys, _CAP).count


def _encoded(two: tuple[pa.Array, pa.Array]) -> int:
    return encode(*two)[2]


def _curve(knots: Iterable[int], make: Callable[[int], Any], run: Callable[[Any], Any]) -> Curve:
    """The price of a tuple by keys.  make: what `run` takes, for so many keys."""
    told = []
    for knot in knots:
        given = make(1 << knot)
        told.append((float(knot), max(trials.LEAST, cpu_of(partial(run, given), 3) / (2 * _wide(1 << knot)))))
    return tuple(told)


def _passes(db: Database, begin: float) -> dict[str, float]:
    tuples = 2 * trials.TUPLES
    table = cpu_of(lambda: _joinable(db, trials.GAP))
    handed = database(trials.TUPLES, 1 << 16, pa.record_batch)
    reading = cpu_of(lambda: _joinable(handed, trials.GAP))
    joined = _joinable(db, trials.GAP)
    look = Look(joined, 0)

    def telling() -> None:
        fresh = Look(joined, 0)
        assert fresh.distinct
        assert fresh.pairs

    looking = cpu_of(telling)

    def weighing() -> None:
        fresh = Look(joined, 0)
        best_keys(fresh.weighed(0), Work(fresh, PRICES), 1e8)

    # What comes in is spread over streams that no near cache holds.
    many = _joinable(database(trials.MANY, trials.MANY >> 4), trials.GAP)
    wide = Look(many, 0)
    draw = np.random.Generator(np.random.PCG64(2)).random(wide.slots)

    def admitting(share: float, coin: float = 1.0) -> float:
        slots, level, coins = (draw < share).astype(np.uint8), np.array([0.0, 1.0]), np.array([1.0, coin])
        return cpu_of(lambda: wide.admitted(slots, level, (coins, coins)), cold=True) / (2 * trials.MANY)

    few, most, tossed = admitting(0.02), admitting(0.52), admitting(0.52, 0.5)
    return {
        "table": max(trials.LEAST, (table - begin) / tuples),
        "read": max(trials.LEAST, (reading - table) / tuples),
        "seen": looking / look.looked,
        "slot": cpu_of(lambda: Kinds(look, 0)) / (tuples + (1 << look.finest)),
        "weigh": max(trials.LEAST, (cpu_of(weighing) - looking) / look.slots),
        "look": few,
        "copy": (copied := max(trials.LEAST, (most - few) / 0.5)),
        "toss": max(trials.LEAST, tossed - few - 0.25 * copied),
    }


def _files() -> dict[str, float]:
    """What reading a tuple costs, from a Parquet file with keys that are numbers, and text besides, and from CSV."""
    csv, parquet = import_module("pyarrow.csv"), import_module("pyarrow.parquet")
    told: dict[str, float] = {}
    with TemporaryDirectory() as folder:
        for kind, tuples in (("parquet", trials.TUPLES), ("parquet_text", trials.TUPLES), ("csv", trials.TUPLES >> 3)):
            ts = pa.array(np.arange(tuples) * trials.GAP).cast(pa.timestamp("ns"))
            table = pa.table({"ts": ts, "k": column(tuples, 1 << 16, 1, text=kind == "parquet_text")})
            write = csv.write_csv if kind == "csv" else parquet.write_table
            turns = []
            for turn in range(trials.ROUNDS):  # each file for the first time: what is kept of it then costs less
                path = Path(folder) / f"{turn}{kind}.{kind.partition('_')[0]}"
                write(table, path)
                db = Database().register("a", path, time="ts")
                began = time.process_time_ns()
                _loaded(db)
                turns.append(time.process_time_ns() - began)
            told[kind] = min(turns) / tuples
    told["parquet_text"] = max(trials.LEAST, told["parquet_text"] - told["parquet"])
    return told


def _loaded(db: Database) -> int:
    return len(load_stream(db._names.manager("a", "k", ())))


def _pairs(join: float) -> dict[str, Any]:
    """What partners and pairs cost beside joining, by how many a tuple has.  join: ns per tuple, among few keys."""
    among = {knot: _pairs_among(1 << knot, join) for knot in _MATCHES}
    told: dict[str, Any] = dict(among[_MATCHES[2]])
    for step in ("pair", "keyed"):
        told[step] = tuple((float(knot), max(trials.LEAST, found[step])) for knot, found in among.items())
    return {step: ns if isinstance(ns, tuple) else max(trials.LEAST, ns) for step, ns in told.items()}


def _pairs_among(matches: int, join: float) -> dict[str, float]:
    """Of streams whose tuples complete so many pairs each."""
    n = max(trials.TUPLES >> 3, min(trials.TUPLES, (1 << 21) // matches))
    tuples, keys = 2 * n, 1 << 12
    db = database(n, keys)
    window = matches * keys * trials.GAP
    while window > n * trials.GAP // 8:  # fewer keys, so that ends of the streams do not matter
        keys, window = keys // 2, window // 2
        db = database(n, keys)
    sparse = _joinable(db, keys * trials.GAP // 2)
    queries = [db.join("a", "b", on="k", window=each / 1e9) for each in (1, window)]
    rows = [asked(query) for query in queries]
    spent = [cpu_of(partial(exact, db, each), 3) for each in (1, window)]
    best = [query.prefer("desc").using(strategy="counts") for query in queries]
    by_key = [cpu_of(partial(asked, query, 1.0), 3) for query in best]
    branch = max(0.0, cpu_of(lambda: _listed(sparse), 3) / tuples - join)
    pair = (spent[1] - spent[0] - branch * tuples) / (rows[1] - rows[0])
    return {
        "branch": branch,
        "pair": pair,
        "keyed": (by_key[1] - by_key[0]) / (rows[1] - rows[0]),
    }


def _handed() -> dict[str, Curve]:
    """What a column costs that is handed out beside the key, by how many tuples its stream has."""
    told: dict[str, list[tuple[float, float]]] = {"handed": [], "handed_text": []}
    for knot in _STREAM:
        n, keys = 1 << knot, 1 << (knot - 5)
        db = database(n, keys, others=True)
        key, numbers, text = (
            cpu_of(partial(exact, db, keys * _PARTNERS * trials.GAP, columns), 3)
            for columns in ("a.k", "a.k, a.v, b.v, a.w, b.w", "a.k, a.s, b.s")
        )
        rows = max(1, exact(db, keys * _PARTNERS * trials.GAP))
        told["handed"].append((float(knot), max(trials.LEAST, (numbers - key) / (4 * rows))))
        told["handed_text"].append((float(knot), max(trials.LEAST, (text - key) / (2 * rows))))
    return {name: tuple(curve) for name, curve in told.items()}


def _samples() -> dict[str, Any]:
    """What a pair of a sample or of an outlier costs, and what a sample of keys tells.

    Of streams that no near cache holds: it is there that most of the work is done.
    """
    tuples, window = 2 * trials.MANY, trials.MANY >> 2
    db = database(trials.MANY, trials.MANY >> 4)
    joined = _joinable(db, window * trials.GAP)
    found, look = _by_key(joined), Look(joined, 0)
    query = db.join("a", "b", on="k", window=(window >> 2) * trials.GAP / 1e9).using(strategy="counts")
    many = db.join("a", "b", on="k", window=2 * window * trials.GAP / 1e9).using(strategy="counts").prefer("weighted")
    one = Budget(outputs=1)
    return {
        "drawn": tuple((float(knot), _between(many, one, Budget(outputs=tuples << knot >> 3))) for knot in _DRAWN),
        "draw": max(trials.LEAST, cpu_of(partial(_drawn, found, _HARDLY), 3, cold=True) / tuples),
        "tell": cpu_of(lambda: _told(found, look), 3, cold=True) / tuples,
        "rare": _between(query.prefer("asc", outlier_cap=_CAP), one, 1.0),
        "keyed": ((0.0, _between(query.prefer("desc"), one, 1.0)),),
        "solve": float(cpu_of(lambda: sampled_keys(look, Work(look, PRICES), 1e7))),
    }


def _between(query: Any, some: Any, most: Any) -> float:
    """ns of a row that the larger of two budgets has besides."""
    rows = max(1, asked(query, most) - asked(query, some))
    spent = [cpu_of(partial(asked, query, budget), 3, cold=True) for budget in (some, most)]
    return max(trials.LEAST, (spent[1] - spent[0]) / rows)


def _a_pair(n: int, keys: int, within: int, *, text: bool = False, by_key: bool = False) -> float:
    """ns of a pair, where so many tuples of the other stream lie in the window of one; by_key: key after key."""
    db, budget = database(n, keys, text=text), 1.0 if by_key else None
    few, all_ = (db.join("a", "b", on="k", window=window) for window in (1e-9, 0.5e-9 * within * trials.GAP))
    if by_key:
        few, all_ = (each.prefer("desc").using(strategy="counts") for each in (few, all_))
    rows = max(1, asked(all_, budget) - asked(few, budget))
    return (cpu_of(lambda: asked(all_, budget), 3) - cpu_of(lambda: asked(few, budget), 3)) / rows


def _named() -> Curve:
    """What a pair costs besides where its key is text, by how many pairs a tuple has."""
    keys = 1 << 8
    told = []
    for knot in _NAMED:
        number, text = (_a_pair(trials.TUPLES >> 1, keys, 2 * keys << knot, text=text) for text in (False, True))
        told.append((float(knot), max(trials.LEAST, text - number)))
    return tuple(told)


def _far() -> Curve:
    """What a pair costs besides, by how many tuples lie in the window, at one pair for each arrival."""
    priced = [_a_pair(max(trials.TUPLES, 1 << knot), (1 << knot) // (2 * _PARTNERS), 1 << knot) for knot in _WITHIN]
    return tuple(
        (float(knot), max(trials.LEAST, (price - priced[0]) * _PARTNERS**0.5))
        for knot, price in zip(_WITHIN, priced, strict=True)
    )


def _drawn(found: KeyPairs, rate: float) -> int:
    one = np.ones(1)
    return sum(len(part) for part in found.drawn(np.zeros(0, np.uint8), rate * one, one, 0.5))


def _told(found: KeyPairs, look: Look) -> Any:
    """What is told by strata: half of the keys of the one, half of the tuples of the other came in."""
    level, coin = np.array([0.5, 1.0]), np.array([1.0, 0.5])
    slots = (np.arange(look.slots) & 1).astype(np.uint8)
    came = slots[look.slot_of(0, np.arange(look.tuples[0]))]
    which = found.strata(lambda left: slots[look.slot_of(0, left)])
    admission = Admission(slots, level, coin, coin, 0.0, 0.0)
    return told(
        found, which, by_stratum((came, came), 2), admission, look.tuples, trials.GAP, trials.MANY * trials.GAP, 0.95
    )
