"""How much of a lake a prioritised scan has to read: bytes and outputs, which no neighbour on the machine changes.

A join is counted over both lakes of `scan_data`, desc, to its end.  Of each partition it is known what it read and what
it gave, in the order in which they were read: so what every smaller budget would have found.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import nile
from nile.experiments.benchmarks.harness import Measure, Result, benchmark
from nile.experiments.benchmarks.scan_data import STREAMS, make
from nile.spark.ingesting.of_lake import lake
from nile.spark.scan.ranking import ENOUGH
from nile.spark.scan.scan import ScanRun

__all__ = ["ask_for", "result_of", "scan"]

TITLE = "a join over a lake, desc: bytes read until 90 % of the outputs are found"
ROWS = 2_000_000
BAR_AT = 50_000_000  # tuples: fewer lie in too few files to leave most of them out
MOST_BYTES = 0.3
_EVEN = 5_000_000  # rows of the lake without skew, at most
_NO_GAIN = "nothing to gain"
QUERY = (
    "SELECT count(*) AS n FROM left_sales A, right_sales B WHERE A.item = B.item WITH PREFERENCE desc A.item WINDOW 60"
)


class Scanned:
    """The whole scan of a lake, done.  run: what happened; told: EXPLAIN; rows: tuples of both streams."""

    def __init__(self, root: Path) -> None:
        with nile.connect() as db:
            for name in STREAMS:
                db.register(f"{name}_sales", lake(root, name))
            result = db.sql(QUERY, engine="spark")
            result.to_arrow()
            self.told = result.explain()
            self.run: ScanRun = result.answer
        self.rows = sum(stream.tuples for stream in self.run.query.streams)

    @property
    def outputs(self) -> np.ndarray[Any, Any]:
        """Of every partition, in the order read."""
        assert self.run._waves is not None
        return np.array(self.run._waves.outputs, np.float64)

    @property
    def sizes(self) -> np.ndarray[Any, Any]:
        """Bytes of every partition, in the order read."""
        return np.array([each.bytes for each in self.run.ranking.order], np.float64)

    @property
    def lake_bytes(self) -> int:
        """Bytes of the columns that the join reads, each file once."""
        total = 0
        for side, stream in zip(self.run.query.task.sides, self.run.query.streams, strict=True):
            for part in stream.parts:
                groups = range(len(part.group_rows))
                total += stream.file(part).bytes_of(groups, side.columns)
        return total

    def bytes_for(self, share: float) -> float:
        """Bytes of the first partitions that have this share of the outputs."""
        upto = np.cumsum(self.outputs)
        return float(np.cumsum(self.sizes)[int(np.searchsorted(upto, share * upto[-1]))])

    def found_in(self, size: float) -> float:
        """The share of the outputs in the first partitions of so many bytes."""
        fit = int(np.searchsorted(np.cumsum(self.sizes), size, side="right"))
        return float(self.outputs[:fit].sum() / self.outputs.sum())


def result_of(data: Path) -> Result:
    """The benchmark over a folder with the lakes `skewed` and `even`."""
    skewed, even = Scanned(data / "skewed"), Scanned(data / "even")
    whole = skewed.lake_bytes
    measures = (
        Measure(
            f"bytes for {ENOUGH:.0%} of the outputs",
            skewed.bytes_for(ENOUGH) / whole,
            "of the lake's",
            MOST_BYTES,
            most=True,
            about="columns that the join reads, each file of the lake counted once"
            + ("" if skewed.rows >= BAR_AT else f"; the bar is one of {BAR_AT:,} tuples"),
        ),
        Measure("the same, of what the whole scan reads", skewed.bytes_for(ENOUGH) / float(skewed.sizes.sum())),
        Measure(f"outputs in {MOST_BYTES:.0%} of the lake's bytes", skewed.found_in(MOST_BYTES * whole)),
        Measure("estimated outputs over found", skewed.run.ranking.expected / float(skewed.outputs.sum())),
        Measure("sketches", skewed.run.memory / skewed.rows, "bytes per tuple"),
        Measure(
            "no skew: says that there is nothing to gain",
            float(_NO_GAIN in even.told),
            bar=1.0,
            about=f"{even.rows:,} tuples; bytes for 90 % of the outputs expected {even.run.ranking.needed():.2f}, "
            f"found {even.bytes_for(ENOUGH) / float(even.sizes.sum()):.2f} of what the whole scan reads",
        ),
    )
    figures = {
        "outputs": f"{skewed.outputs.sum():,.0f}",
        "partitions read": f"{len(skewed.sizes):,}",
        "ruled out": f"{skewed.run.ranking.ruled_out:,}",
        "bytes of the whole scan": f"{skewed.sizes.sum():,.0f}",
        "bytes of the lake's columns": f"{whole:,}",
    }
    return Result("scan", TITLE, "tuples", skewed.rows, (), measures, (), figures)


_ASKED: dict[str, Any] = {"rows": ROWS, "data": None}


def ask_for(*, rows: int | None = None, data: Path | None = None) -> None:
    """What the benchmark is to be run over: so many rows, or a folder with lakes made before."""
    _ASKED.update({"rows": rows or ROWS, "data": data})


@benchmark("scan", TITLE)
def scan() -> Result:
    """Two million rows made for it, or what was asked for."""
    if _ASKED["data"] is not None:
        return result_of(_ASKED["data"])
    with tempfile.TemporaryDirectory() as folder:
        make_both(Path(folder), _ASKED["rows"])
        return result_of(Path(folder))


def make_both(folder: Path, rows: int) -> None:
    """The lakes `skewed`, of so many rows, and `even`, of as many up to five million."""
    make(folder / "skewed", rows)
    make(folder / "even", min(rows, _EVEN), skewed=False)
