"""A seeded retail stream with the shape of real ones, for demos, tests and benchmarks.

Items follow Zipf's law; which of them are the popular ones changes at seeded moments (drift). Arrivals have
exponential gaps that alternate between calm and bursts, cut to whole seconds, so that many tuples share a
timestamp. Rare items are planted: each is sold once in virtual store 0 and once, soon after, in store 1.

The same settings give the same rows on every machine: random numbers are PCG64 integers and uniform doubles,
and everything made of them uses only additions, multiplications, divisions and square roots, which IEEE 754
fixes to the bit (logarithms and powers differ between processors).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from nile.summaries.errors import ConfigError
from nile.summaries.heavy import pa, pq

_START = 1_291_190_400  # 2010-12-01 08:00:00 UTC, in seconds
_COUNTRIES = {
    "United Kingdom": 908,
    "Germany": 18,
    "France": 16,
    "EIRE": 15,
    "Spain": 13,
    "Netherlands": 11,
    "Belgium": 10,
    "Switzerland": 9,
}
_BASKET = 20  # mean tuples a transaction
_CALM, _BURST = 1_200, 300  # mean tuples of a calm and of a bursty stretch
_CUSTOMERS = 4_000
_FIRST_CUSTOMER = 12_346
_FIRST_TRANSACTION = 536_365
_RARE_DISTANCE = 60  # most tuples between the two sales of a rare item


@dataclass(frozen=True)
class SyntheticRetail:
    """A stream of `tuples` sales, the same for the same settings.

    `items`: regular items. `skew`: Zipf exponent, a multiple of 0.5. `changes`: how often the popular items
    change. `rare`: planted rare items, two tuples each. `vstores`: virtual stores, numbered from 0.
    `calm_gap`, `burst_gap`: mean seconds between tuples. Memory: about 150 bytes per tuple while it is made.
    """

    seed: int = 0
    tuples: int = 120_000
    items: int = 2_000
    skew: float = 1.0
    changes: int = 6
    rare: int = 200
    vstores: int = 2
    calm_gap: float = 6.0
    burst_gap: float = 0.5

    def __post_init__(self) -> None:
        needs = {
            "seed": (self.seed, 0, 2**63),
            "tuples": (self.tuples, 0, 2**31 - 1),
            "items": (self.items, 1, 100_000),
            "changes": (self.changes, 0, 100),
            "rare": (self.rare, 0, 100_000),
            "vstores": (self.vstores, 2, 127),
            "skew": (self.skew, 0, 4),
            "calm_gap": (self.calm_gap, 0.01, 86_400),
            "burst_gap": (self.burst_gap, 0.01, 86_400),
        }
        for name, (value, low, high) in needs.items():
            if not low <= value <= high:
                raise ConfigError(f"synthetic retail: needed {name} from {low} to {high}, got {value}")
        if self.skew * 2 != int(self.skew * 2):
            raise ConfigError(f"synthetic retail: needed a skew that is a multiple of 0.5, got {self.skew}")

    @property
    def schema(self) -> pa.Schema:
        """The columns, those of the UCI retail file."""
        return pa.schema(
            [
                ("seq", pa.int32()),
                ("ts", pa.timestamp("us")),
                ("store_id", pa.int16()),
                ("country", pa.string()),
                ("vstore", pa.int8()),
                ("transaction_id", pa.string()),
                ("item_id", pa.string()),
                ("price", pa.float64()),
                ("quantity", pa.int32()),
                ("customer_id", pa.int32()),
            ]
        )

    def table(self) -> pa.Table:
        """All rows, in order of time."""
        chance = np.random.Generator(np.random.PCG64(self.seed))
        seconds = self._seconds(chance)
        item = self._items_sold(chance)
        basket = np.cumsum(chance.random(self.tuples) * _BASKET < 1.0)
        baskets = int(basket[-1]) + 1 if self.tuples else 0
        vstore = chance.integers(0, self.vstores, baskets)[basket]
        store = _choose(chance.random(baskets), np.array(list(_COUNTRIES.values()), float))[basket]
        customer = (_FIRST_CUSTOMER + chance.integers(0, _CUSTOMERS, baskets))[basket]
        unknown_customer = (chance.random(baskets) < 0.25)[basket]
        self._plant(chance, item, vstore)
        cents = chance.integers(29, 1_500, self.items + self.rare)
        quantity = 1 + chance.integers(0, 6, self.tuples) * chance.integers(0, 6, self.tuples)
        quantity = np.where(chance.random(self.tuples) < 0.02, -quantity, quantity)
        names = [f"S{number:05d}" for number in range(self.items)] + [f"R{number:05d}" for number in range(self.rare)]
        columns = [
            pa.array(np.arange(self.tuples, dtype=np.int32)),
            pa.array(seconds * 1_000_000, pa.timestamp("us")),
            pa.array(store.astype(np.int16)),
            _named(store, list(_COUNTRIES)),
            pa.array(vstore.astype(np.int8)),
            _named(basket, [str(_FIRST_TRANSACTION + number) for number in range(baskets)]),
            _named(item, names),
            pa.array(cents[item] / 100.0),
            pa.array(quantity.astype(np.int32)),
            pa.array(customer.astype(np.int32), mask=unknown_customer),
        ]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def batches(self, rows: int = 65_536) -> Iterator[pa.RecordBatch]:
        """The rows as record batches of at most `rows`."""
        yield from self.table().to_batches(max_chunksize=rows)

    def write_parquet(self, path: str | Path) -> None:
        """Writes the rows as one Parquet file."""
        pq.write_table(self.table(), path)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table().__arrow_c_stream__(requested_schema)

    def _seconds(self, chance: np.random.Generator) -> np.ndarray:
        """Event times in seconds since 1970, in order."""
        bursty = np.zeros(self.tuples, bool)
        start = 0
        while start < self.tuples:
            calm, burst = _geometric(chance.random(2), np.array([_CALM, _BURST], float))
            bursty[start + calm : start + calm + burst + 1] = True
            start += calm + burst + 1
        uniform = chance.random(self.tuples)
        gaps = np.where(bursty, _waits(uniform, self.burst_gap), _waits(uniform, self.calm_gap))
        return _START + np.cumsum(gaps)

    def _items_sold(self, chance: np.random.Generator) -> np.ndarray:
        """The item of each tuple: ranks by Zipf's law, and after each change new items at the ranks."""
        ranks = np.arange(1, self.items + 1, dtype=np.float64)
        weights = np.ones(self.items)
        for _ in range(int(self.skew)):
            weights = weights / ranks
        if self.skew != int(self.skew):
            weights = weights / np.sqrt(ranks)
        rank = _choose(chance.random(self.tuples), weights)
        changes = np.sort(chance.integers(0, max(self.tuples, 1), self.changes))
        phase = np.searchsorted(changes, np.arange(self.tuples), side="right")
        holders = np.stack([np.argsort(chance.random(self.items), kind="stable") for _ in range(self.changes + 1)])
        sold: np.ndarray = holders[phase, rank]
        return sold

    def _plant(self, chance: np.random.Generator, item: np.ndarray, vstore: np.ndarray) -> None:
        """Puts each rare item into its own stretch of the stream: once in store 0, soon after in store 1."""
        if not self.rare:
            return
        stretch = self.tuples // self.rare
        if stretch < 2:
            raise ConfigError(
                f"synthetic retail: needed 2 tuples for each rare item, got {self.tuples} for {self.rare}; "
                "set rare lower"
            )
        first = np.arange(self.rare) * stretch + chance.integers(0, stretch - stretch // 2, self.rare)
        second = first + 1 + chance.integers(0, min(_RARE_DISTANCE, stretch // 2), self.rare)
        number = self.items + np.arange(self.rare)
        item[first], vstore[first] = number, 0
        item[second], vstore[second] = number, 1


def _choose(uniform: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """For each uniform number in [0, 1) an index, with probability proportional to its weight."""
    reached = np.cumsum(weights)
    chosen: np.ndarray = np.searchsorted(reached[:-1], uniform * reached[-1], side="right")
    return chosen


def _waits(uniform: np.ndarray, mean: float) -> np.ndarray:
    """Exponential waits of about `mean` seconds cut to whole seconds, which are geometric: P(wait > k) = q^(k+1)."""
    waits: np.ndarray = np.searchsorted(_reached(mean), uniform, side="right")
    return waits


@cache
def _reached(mean: float) -> np.ndarray:
    """P(wait <= k) for k = 0, 1, ... as far as a double tells it from 1."""
    ratio = mean / (1.0 + mean)
    survival = [ratio]
    while survival[-1] > 2.0**-53:
        survival.append(survival[-1] * ratio)
    reached: np.ndarray = 1.0 - np.array(survival)
    return reached


def _geometric(uniform: np.ndarray, means: np.ndarray) -> tuple[int, int]:
    calm, burst = (int(_waits(uniform[at : at + 1], float(means[at]))[0]) for at in range(2))
    return calm, burst


def _named(index: np.ndarray, names: list[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(index.astype(np.int32)), pa.array(names, pa.string())).cast(
        pa.string()
    )
