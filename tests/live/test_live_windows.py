"""Standing joins whose candidates are tested: windows between pairs of streams, and conditions on the combination."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from thinning import rounds
from workload_live import NAMES, gone_on, opened, push_all, tables_of

import nile

SHAPES = {
    "graph": ("", " WINDOW (a, b) = 30 AND (b, c) = 20"),
    "path": ("", " DWINDOW (a, b) = 30 AND (b, c) = 20"),
    "unequal": ("", " WINDOW (a, b) = 30 AND (b, c) = 10 AND (a, c) = 35"),
    "condition": (" AND a.price < c.price", " WINDOW 30"),
}
KINDS = ("desc", "asc", "weighted")


def query(shape: str, kind: str | None) -> str:
    where, window = SHAPES[shape]
    prefers = "" if kind is None else f" WITH PREFERENCE {kind} a.item"
    return (
        "SELECT a.seq AS a, b.seq AS b, c.seq AS c FROM a, b, c WHERE a.item = b.item AND b.item = c.item"
        f"{where}{prefers}{window}"
    )


def found(standing: Any) -> list[tuple[int, ...]]:
    table = pa.Table.from_batches(standing.poll(), standing.schema)
    return list(zip(*(table.column(name).to_pylist() for name in NAMES[:3]), strict=True))


def exact(shape: str, tables: Any) -> tuple[set[tuple[int, ...]], nile.Result]:
    db = opened(tables)
    push_all(db, tables, 0, 500)
    rows = db.sql(query(shape, None), emit="append").to_arrow()
    return set(zip(*(rows.column(name).to_pylist() for name in NAMES[:3]), strict=True)), db.sql(
        query(shape, "desc"), budget=0.5
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_no_false_combination_within_the_budget_and_alike_however_cut_or_stopped(shape: str, kind: str) -> None:
    tables = tables_of(7, (150, 150, 150), keys=20)
    truth, one = exact(shape, tables)
    assert len(truth) > 20
    for budget in (0.15, 0.5):
        whole, cut = opened(tables), opened(tables)
        first, other = (db.subscribe(query(shape, kind), budget=budget) for db in (whole, cut))
        push_all(whole, tables, 1, 400)
        first.close()
        rows = found(first)
        assert set(rows) <= truth
        assert len(set(rows)) == len(rows)
        # Of the exact cost it knows what is certain alone, and never grants more than a share of all of it.
        assert first.figures.spent <= budget * one.answer.figures.exact_cost
        assert first.budget.spent <= budget + 1e-9
        push_all(cut, {name: table.slice(0, 80) for name, table in tables.items()}, 2, 9)
        other = gone_on(cut, other, query(shape, kind), budget=budget)
        push_all(cut, {name: table.slice(80) for name, table in tables.items()}, 3, 9)
        other.close()
        assert found(other) == rows
        assert (other.figures, other.budget, other.accounting) == (first.figures, first.budget, first.accounting)
        if kind == "desc" and budget == 0.5:
            assert len(rows) > 10


@pytest.mark.parametrize("shape", [each for each in SHAPES if each != "condition"])
def test_the_whole_budget_finds_every_combination(shape: str) -> None:
    tables = tables_of(8, (120, 120, 120), keys=15)
    truth, _ = exact(shape, tables)
    db = opened(tables)
    standing = db.subscribe(query(shape, "desc"), budget=1.0)
    push_all(db, tables, 4, 50)
    standing.close()
    assert sorted(found(standing)) == sorted(truth)
    assert standing.estimate.value == len(truth)


@pytest.mark.parametrize("shape", ["graph", "condition"])
@pytest.mark.parametrize("seeds", rounds(60))
def test_weights_add_up_to_all_on_average(shape: str, seeds: int) -> None:
    tables = tables_of(9, (80, 80, 80), keys=8)
    truth, _ = exact(shape, tables)
    db = opened(tables)
    asked = [db.subscribe(query(shape, "weighted"), budget=0.4, seed=seed) for seed in range(seeds)]
    push_all(db, tables, 5, 500)
    totals = []
    for each in asked:
        each.close()
        totals.append(sum(sum(batch.column("_weight").to_pylist()) for batch in each.poll()))
    told = np.array(totals)
    assert abs(told.mean() - len(truth)) < 3.0 * told.std(ddof=1) / np.sqrt(len(asked))
