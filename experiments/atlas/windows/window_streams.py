"""Several streams for window joins: made, or split out of a file of real data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

import nile
from nile.exact.join.chain import encode_all
from nile.experiments.atlas.kinds import Data
from nile.summaries.errors import ConfigError

__all__ = ["PATTERNS", "Played", "made", "split"]

Array = np.ndarray[Any, Any]
PATTERNS = ("even", "spread", "turns")
_S = 1_000_000_000
_TURN = 100  # tuples of the last stream after which its rate changes


@dataclass(frozen=True, slots=True)
class Played:
    """Tuples of several streams in total order: which int8, ts int64 ns not decreasing, code int64, all [n]."""

    streams: int
    which: Array
    ts: Array
    code: Array

    def __len__(self) -> int:
        return int(self.ts.shape[0])


def made(streams: int, seed: int, *, tuples: int, rate: float, least: float, pattern: str, items: int) -> Played:
    """Streams with exponential gaps and uniform items.  tuples: of all streams; rate, least: tuples per second.

    pattern: "even": every stream at `rate`; "spread": from `rate` down to `least` by equal factors; "turns": the last
    stream changes between both every 100 of its tuples, beginning with `least`.
    Source: TR 02-010, sections 4.2 (exponential gaps, few values), 4.3 (variable rates, one stream in turns).
    """
    rng = np.random.Generator(np.random.PCG64([seed, streams]))
    rates = [rate] * streams
    if pattern == "spread":
        rates = [rate * (least / rate) ** (k / (streams - 1)) for k in range(streams)]
    turning = pattern == "turns"
    if turning:
        rates[-1] = 2.0 / (1.0 / rate + 1.0 / least)  # on average
    seconds = 1.1 * tuples / sum(rates)
    times, which = [], []
    for k, own in enumerate(rates):
        n = math.ceil(own * seconds) + (2 * _TURN if turning else 20)
        paces = np.full(n, own)
        if turning and k == streams - 1:
            paces = np.where(np.arange(n) // _TURN % 2 == 0, least, rate)
        times.append(np.cumsum(rng.exponential(1.0, n) / paces * _S).astype(np.int64))
        which.append(np.full(n, k, np.int8))
    ts, stream = np.concatenate(times), np.concatenate(which)
    order = np.argsort(ts, kind="stable")[:tuples]
    code: Any = rng.integers(0, items, order.shape[0])
    return Played(streams, stream[order], ts[order], code)


def split(streams: int, data: Data, *, tuples: int) -> Played:
    """The first tuples of a file whose most frequent values of `data.split` are the streams, the most frequent first.

    Raises ConfigError when that column has fewer values than streams, and what reading raises.
    """
    ts, code, place = _whole(data)
    counts = np.bincount(place[place >= 0])
    if counts.shape[0] < streams:
        raise ConfigError(
            f"--split {data.split}: needed {streams} streams; got {counts.shape[0]} values; name a column with more"
        )
    largest = np.argsort(-counts, kind="stable")[:streams]
    which = np.full(counts.shape[0] + 1, -1, np.int8)  # the last entry is for null
    which[largest] = np.arange(streams, dtype=np.int8)
    kept = np.flatnonzero(which[place] >= 0)[:tuples]
    return Played(streams, which[place[kept]], ts[kept], code[kept])


@lru_cache(maxsize=1)
def _whole(data: Data) -> tuple[Array, Array, Array]:
    """All tuples of a file in order: time int64 ns, code of the key, code of the stream, below 0 for null; [n] each."""
    database = nile.connect().register("all", data.path, time=data.time)
    keys, values = database.load("all", data.key), database.load("all", data.split)
    return keys.ts, encode_all([keys.key])[0][0], encode_all([values.key])[0][0]
