"""How fast a batch goes into a count sketch, beside what one would otherwise write in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import datasketches
import numpy as np

from nile.experiments.benchmarks.harness import Bar, Contestant, Result, benchmark, race
from nile.summaries.countsketch import CountSketch
from nile.summaries.hashing import KeyHasher

__all__ = ["bincount_cells", "bincount_signs", "mix_with_numpy", "sketch_update", "zipf_keys"]

Array = np.ndarray[Any, Any]

TITLE = "count-sketch batch update, depth 5, width 1024, Zipf integer keys"
ROWS, COLUMNS = 5, 1024
TUPLES = 1 << 19
BATCH = 1 << 16  # as the stream manager hands them on
KEYS = 100_000
SKEW = 1.1

DATASKETCHES = "datasketches count_min_sketch, one update per tuple"
NUMPY_SIGNS = "numpy bincount, signs as weights"
NUMPY_CELLS = "numpy bincount, signs folded into Nile's cells"


def zipf_keys(tuples: int, keys: int, skew: float, seed: int) -> Array:
    """Keys 0..keys-1 with probability proportional to 1 / (key + 1)**skew: int64 [tuples]."""
    cumulative = np.cumsum(1.0 / np.arange(1, keys + 1) ** skew)
    drawn = np.searchsorted(cumulative / cumulative[-1], np.random.default_rng(seed).random(tuples))
    return drawn.astype(np.int64)


def mix_with_numpy(keys: Array, seed: int) -> Array:
    """Nile's hash of integers, in numpy and in place: uint64 [n] for int64 [n]."""
    z = keys.view(np.uint64) + np.uint64(seed)
    shifted = z >> np.uint64(30)
    for multiplier, by in ((0xBF58476D1CE4E5B9, 27), (0x94D049BB133111EB, 31)):
        z ^= shifted
        z *= np.uint64(multiplier)
        np.right_shift(z, np.uint64(by), out=shifted)
    z ^= shifted
    return z


def bincount_signs(counters: Array, multipliers: Array, hashes: Array) -> None:
    """The count sketch as numpy has it: np.bincount(column, weights=sign) for each row.

    counters: float64 [rows, columns]; hashes: uint64 [n].  The top bits of multiplier * hash are the column,
    the next one the sign.  Reusing buffers in blocks of the cache gains less than a tenth.
    """
    columns = counters.shape[1]
    by = np.uint64(64 - columns.bit_length())
    one = np.uint64(1)
    for row, multiplier in enumerate(multipliers):
        cells = (multiplier * hashes) >> by
        signs = 1.0 - 2.0 * (cells & one)
        counters[row] += np.bincount((cells >> one).view(np.int64), signs, columns)


def bincount_cells(counters: Array, multipliers: Array, hashes: Array) -> None:
    """The best form we could find for numpy: Nile's layout of cells, so that bincount needs no weights.

    counters: int64 [rows, 2 * columns]; hashes: uint64 [n].
    """
    cells = counters.shape[1]
    by = np.uint64(65 - cells.bit_length())
    index = np.empty(hashes.shape[0], np.uint64)
    for row, multiplier in enumerate(multipliers):
        np.multiply(hashes, multiplier, out=index)
        np.right_shift(index, by, out=index)
        counters[row] += np.bincount(index.view(np.int64), minlength=cells)


@benchmark("sketch", TITLE)
def sketch_update() -> Result:
    """Integer keys in, counters out, batch after batch; every contestant hashes the keys itself."""
    keys = zipf_keys(TUPLES, KEYS, SKEW, seed=1)
    hasher = KeyHasher()
    ours = CountSketch(ROWS, COLUMNS)
    theirs = datasketches.count_min_sketch(ROWS, COLUMNS, 1)
    integers = keys.tolist()
    signed = np.zeros((ROWS, COLUMNS), np.float64)
    cells = np.zeros((ROWS, 2 * COLUMNS), np.int64)

    def update_each() -> None:
        update = theirs.update
        for key in integers:
            update(key)

    def batches(count: Callable[[Array], None]) -> Callable[[], None]:
        def run() -> None:
            for begin in range(0, TUPLES, BATCH):
                count(keys[begin : begin + BATCH])

        return run

    def with_numpy(form: Callable[[Array, Array, Array], None], counters: Array) -> Callable[[], None]:
        return batches(lambda part: form(counters, ours.row_multipliers, mix_with_numpy(part, hasher.seed)))

    return race(
        "sketch",
        TITLE,
        [
            Contestant("nile", batches(lambda part: ours.summarize(hasher.words(part)))),
            Contestant(DATASKETCHES, update_each),
            Contestant(NUMPY_SIGNS, with_numpy(bincount_signs, signed)),
            Contestant(NUMPY_CELLS, with_numpy(bincount_cells, cells)),
        ],
        work=TUPLES,
        unit="tuples",
        bars=[Bar(DATASKETCHES, 8.0), Bar(NUMPY_SIGNS, 6.0), Bar(NUMPY_CELLS, 6.0)],
        notes=[
            f"keys 0..{KEYS - 1:,}, Zipf {SKEW}, batches of {BATCH:,}; each contestant hashes its keys",
            "five rows are five stores a tuple, for Nile and for np.bincount without weights alike, which is "
            "why the last ratio cannot be large",
        ],
    )
