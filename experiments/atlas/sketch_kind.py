"""How well a sketch of a given size knows the counts of keys, beside the count-min sketch of Apache DataSketches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field, model_validator

from nile.experiments.atlas.kinds import Data, Kind, Metric, Options, register
from nile.experiments.benchmarks.streams import exponent_for
from nile.experiments.run.fields import one_of
from nile.streams.source import open_source
from nile.summaries.countsketch import CountSketch
from nile.summaries.errors import ConfigError
from nile.summaries.hashing import hash_keys
from nile.summaries.heavy import datasketches, pa

__all__ = ["SKETCH", "SketchOptions"]

Array = np.ndarray[Any, Any]
_ITEMS = 20_000
_COUNTER = {"countsketch": 16, "countmin": 8}  # bytes per column takes in a row
_HEAVY = 100  # keys, the most frequent first


class SketchOptions(Options):
    """bytes: of all counters; a row gets the greatest power of two of columns that fits."""

    data: Annotated[str, one_of(("synthetic", "real"))] = Field("synthetic", description="synthetic or real")
    tuples: Annotated[int, Field(ge=100, le=10_000_000)] = Field(100_000, description="a whole number from 100 on")
    selectivity: Annotated[float, Field(gt=0, lt=1)] = Field(0.005, description="a share in (0, 1)")
    sketch: Annotated[str, one_of(("countsketch", "countmin"))] = Field(
        "countsketch", description="countsketch or countmin"
    )
    rows: Annotated[int, Field(ge=1, le=15)] = Field(3, description="a whole number from 1 to 15")
    bytes: Annotated[int, Field(ge=64, le=1 << 30)] = Field(8192, description="a whole number from 64 on")

    @model_validator(mode="after")
    def _fits(self) -> SketchOptions:
        if self.columns < 4:
            needed = 4 * self.rows * _COUNTER[self.sketch]
            raise ConfigError(f"needed {needed} bytes or more for {self.rows} rows; got {self.bytes}; raise them")
        return self

    @property
    def columns(self) -> int:
        """Columns a row."""
        return 1 << ((self.bytes // (self.rows * _COUNTER[self.sketch])).bit_length() - 1)


@dataclass(frozen=True, slots=True)
class _Counted:
    """Distinct keys, the most frequent first, as hashes [n] and with their counts [n]."""

    words: Array
    counts: Array


def _prepare(options: SketchOptions, seed: int, data: Data | None) -> _Counted:
    if data is None:
        weights = np.arange(1, _ITEMS + 1, dtype=np.float64) ** -exponent_for(options.selectivity, _ITEMS)
        drawn = np.random.Generator(np.random.PCG64([seed, 30])).random(options.tuples) * weights.sum()
        column = pa.array(np.minimum(np.searchsorted(np.cumsum(weights), drawn, side="right"), _ITEMS - 1))
    else:
        batches = [raw.batch for raw in open_source(data.path, name="data").batches([data.key], 65_536)]
        column = pa.Table.from_batches(batches).column(data.key).slice(0, options.tuples).drop_null()
    counted = column.value_counts()
    counts = counted.field("counts").to_numpy()
    order = np.argsort(-counts, kind="stable")
    return _Counted(hash_keys(counted.field("values"))[order], counts[order])


def _measure(given: _Counted, options: SketchOptions, seed: int) -> Mapping[str, float | None]:
    if options.sketch == "countsketch":
        sketch = CountSketch(options.rows, options.columns, seed)
        sketch.summarize(given.words, given.counts)
        values = np.asarray(sketch.estimate(given.words).value, dtype=np.float64)
    else:
        other = datasketches.count_min_sketch(options.rows, options.columns, seed + 1)
        words = given.words.view(np.int64).tolist()
        for word, count in zip(words, given.counts.tolist(), strict=True):
            other.update(word, count)
        values = np.array([other.get_estimate(word) for word in words], dtype=np.float64)
    off = np.abs(values - given.counts)
    heavy = min(_HEAVY, off.shape[0])
    return {
        "error_heavy": float((off[:heavy] / given.counts[:heavy]).mean()),
        "error_all": float(off.mean() / given.counts.mean()),
    }


SKETCH = register(
    Kind(
        name="sketch",
        about="counts of keys from a sketch of a given size",
        options=SketchOptions,
        metrics={
            "error_heavy": Metric(
                "Error of the counts of the 100 most frequent keys", "error", "mean relative error", "distance", -1
            ),
            "error_all": Metric(
                "Error of all counts", "error", "mean error over the mean count", "distance", -1
            ),
        },
        prepares=("data", "tuples", "selectivity"),
        prepare=_prepare,
        measure=_measure,
        operator=lambda options: f"{options.sketch} of {options.rows} rows",
    )
)  # fmt: skip
