"""The picture of a summary: its cells are the grid's, its borders the zones', its text harmless."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pyarrow as pa

from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.spec import SummarySpec
from nile.report.pages.heatmap import HeatMap


def summary_of(n: int, **options: object) -> SummaryManager:
    spec = SummarySpec(granularity=1_000_000, rate=2, depth=3, buckets=8, columns=8, **options)  # type: ignore[arg-type]
    manager = SummaryManager(spec)
    keys = np.random.Generator(np.random.PCG64(1)).integers(0, 50, n)
    manager.ingest(np.arange(n, dtype=np.int64) * 500, pa.array(keys))
    return manager


def test_the_cells_hold_every_tuple_once_and_in_its_bucket() -> None:
    manager = summary_of(20_000)
    drawn = HeatMap.of(manager, "s")
    assert drawn.tuples.shape == (len(manager.zones()), 8)
    assert drawn.tuples.sum(axis=1).tolist() == [zone.summarised for zone in manager.zones()]
    shift = np.uint64(61)
    codes = manager.keys.encode(pa.array(np.random.Generator(np.random.PCG64(1)).integers(0, 50, 20_000)))
    assert drawn.tuples.sum(axis=0).tolist() == np.bincount(codes.hashes >> shift, minlength=8).tolist()


def test_the_picture_is_well_formed_and_draws_each_full_cell_and_each_zone() -> None:
    drawn = HeatMap.of(summary_of(20_000), '<script>"&')
    root = ET.fromstring(str(drawn.svg()))
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{space}rect")) == np.count_nonzero(drawn.tuples)
    assert len(root.findall(f"{space}line")) == len(drawn.zones)
    assert {text.text for text in root.findall(f"{space}text")} >= {"G1", "G2", "G3"}
    assert "<script>" not in str(drawn.figure())


def test_an_empty_summary_and_one_without_a_grid_say_so() -> None:
    assert "No zones" in str(HeatMap.of(SummaryManager(SummarySpec(granularity=10)), "Summary").svg())
    assert "No zones" in str(HeatMap.of(summary_of(1_000, structure="T1"), "Summary").svg())
