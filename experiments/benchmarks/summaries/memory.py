"""What a summary holds as its stream grows: sketches a fixed size, the directory by distinct keys, lists by window."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from nile.experiments.benchmarks.harness import Result, benchmark
from nile.pyramid.grid.manager import Memory, SummaryManager
from nile.pyramid.grid.spec import SummarySpec

__all__ = ["curve", "memory"]

_BATCH = 65_536
_WINDOW = 100_000  # tuples that stay reachable
_LENGTHS = (100_000, 1_000_000, 10_000_000)
_DOMAINS = (10_000, 1_000_000)


def curve(keys: int, lengths: tuple[int, ...] = _LENGTHS, window: int = _WINDOW) -> dict[int, tuple[int, Memory]]:
    """Distinct keys and memory after so many tuples of a stream over `keys` keys (uniform), a tuple a microsecond."""
    spec = SummarySpec(granularity=1_000 * window, rate=4, depth=3)
    manager = SummaryManager(spec)
    rng = np.random.Generator(np.random.PCG64(7))
    told: dict[int, tuple[int, Memory]] = {}
    done = 0
    for length in lengths:
        while done < length:
            n = min(_BATCH, length - done)
            ts = np.arange(done, done + n, dtype=np.int64) * 1_000
            manager.ingest(ts, pa.array(rng.integers(0, keys, n)))
            done += n
            manager.release(int(ts[-1]) - 1_000 * window)
        told[length] = (manager.keys.known, manager.memory)
    return told


@benchmark("memory", "Bytes held by a summary over 10^5 to 10^7 tuples")
def memory() -> Result:
    """Sketch bytes must not move, directory bytes follow distinct keys, list bytes stay within a window's worth."""
    figures: dict[str, object] = {}
    for keys in _DOMAINS:
        for length, (distinct, held) in curve(keys).items():
            figures[f"{keys:,} keys, {length:,} tuples ({distinct:,} distinct)"] = (
                f"sketches {held.sketches:,}; directory {held.directory:,}; tuples {held.tuples:,} bytes"
            )
    return Result(
        name="memory",
        title=f"bytes held by a summary; {_WINDOW:,} tuples stay reachable",
        unit="tuples",
        work=_LENGTHS[-1],
        timings=(),
        measures=(),
        figures=figures,
    )
