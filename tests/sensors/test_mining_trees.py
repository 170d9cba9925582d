"""Decision trees: grown as by definition, at once and standing, kept as a table, and told of lists by MATCHES."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.execution.statement.builder import read_query
from nile.experiments.examples.hazmat.spectra import LIBRARY, LINES, prepared, rates
from nile.mining.trees import Tree, TreeGrower, grown
from nile.sql.text import query_text

Array = np.ndarray[Any, Any]


def tree_by_definition(examples: list[tuple[list[float], str]], depth: int, least: int) -> Any:
    """(name, share, examples, None | (place, threshold, below, above)), by trying every split with fractions."""
    counts = Counter(name for _, name in examples)
    name = min(counts, key=lambda each: (-counts[each], each))
    split = None
    if depth and len(counts) > 1:
        best: Any = None
        for place in range(len(examples[0][0])):
            values = sorted({each[place] for each, _ in examples})
            for low, high in pairwise(values):
                parts = [[e for e in examples if e[0][place] <= low], [e for e in examples if e[0][place] > low]]
                if min(map(len, parts)) < least:
                    continue
                impurity = sum(
                    len(part) - sum(Fraction(n * n, len(part)) for n in Counter(name for _, name in part).values())
                    for part in parts
                )
                if best is None or impurity < best[0]:
                    best = (impurity, place, low / 2 + high / 2, parts)
        if best is not None:
            _, place, threshold, parts = best
            split = (place, threshold, *(tree_by_definition(part, depth - 1, least) for part in parts))
    return name, counts[name] / len(examples), len(examples), split


def nested(tree: Tree, node: int = 0) -> Any:
    split = None
    if tree.features[node] >= 0:
        assert node < tree.below[node]
        assert node < tree.above[node]
        below, above = nested(tree, int(tree.below[node])), nested(tree, int(tree.above[node]))
        split = (int(tree.features[node]), float(tree.thresholds[node]), below, above)
    return tree.names[node], float(tree.shares[node]), int(tree.counts[node]), split


def followed(tree: Any, value: list[float]) -> tuple[str, float]:
    name, share, _, split = tree
    if split is None:
        return name, 1.0 - share
    place, threshold, below, above = split
    return followed(below if value[place] <= threshold else above, value)


def drawn(seed: int) -> tuple[Array, list[str]]:
    draw = np.random.default_rng(seed)
    n, width, kinds = int(draw.integers(1, 40)), int(draw.integers(1, 5)), int(draw.integers(1, 5))
    values = draw.integers(0, 6, (n, width)) / 4.0  # many ties
    return values, ["abcd"[k] for k in draw.integers(0, kinds, n)]


@pytest.mark.parametrize("seed", range(60))
def test_trees_are_those_of_the_definition(seed: int) -> None:
    values, names = drawn(seed)
    for depth, least in ((10, 1), (2, 1), (64, 3)):
        tree = grown(values, names, depth, least)
        wanted = tree_by_definition(list(zip(values.tolist(), names, strict=True)), depth, least)
        assert nested(tree) == wanted
        leaves = tree.leaves(values)
        assert [(tree.names[k], 1 - tree.shares[k]) for k in leaves] == [followed(wanted, v) for v in values.tolist()]


def test_what_no_single_number_tells_apart_is_learnt_too() -> None:
    corners = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], float)
    tree = grown(corners, ["same", "other", "other", "same"], 10, 1)
    assert [tree.names[k] for k in tree.leaves(corners)] == ["same", "other", "other", "same"]
    extremes = grown(np.array([[-1.7e308], [1.7e308]]), ["a", "b"], 10, 1)
    assert extremes.thresholds[0] == 0.0


@pytest.mark.parametrize(("every", "span"), [(0, 1000), (7, 1000), (25, 30), (1, 5)])
def test_a_grower_tells_the_trees_of_its_last_examples_however_lists_are_cut(every: int, span: int) -> None:
    draw = random.Random(4)
    values = np.random.default_rng(4).integers(0, 5, (60, 3)) / 2.0
    values[[3, 30]] = np.nan
    names: list[str | None] = [draw.choice(["x", "y", None, "z"]) for _ in range(60)]
    usable = [k for k in range(60) if names[k] is not None and np.isfinite(values[k]).all()]
    ends = usable[every - 1 :: every] if every else []
    wanted = []
    for count, end in enumerate([*ends, *([None] if not ends or ends[-1] != usable[-1] else [])]):
        held = [k for k in usable if end is None or k <= end][-span:]
        tree = grown(values[held], [names[k] for k in held], 6, 2)
        wanted += [(count + 1, k, tree.names[k], int(tree.counts[k])) for k in range(len(tree.counts))]
    for at in ([], list(range(1, 60)), sorted(draw.sample(range(60), 9))):
        grower, found = TreeGrower(6, 2, every, span), []
        for part in np.split(np.arange(60), at):
            found += grower.push_keyed(part, part * 10**9, values[part], [names[k] for k in part])
        found += grower.finish()
        assert [(row[0], row[1], name, row[7]) for name, (_, _, row) in found] == wanted


def examples(n: int = 300) -> dict[str, Any]:
    values, names = np.random.default_rng(2).normal(size=(n, 4)), []
    for k, each in enumerate(values.tolist()):
        names.append(None if k % 50 == 9 else "hot" if each[1] > 0.5 else "odd" if each[3] < -0.3 else "usual")
    lists: list[Any] = values.tolist()
    lists[17], lists[18], lists[19] = None, [1.0, 2.0], [1.0, None, 2.0, 3.0]
    return {"ts": [float(k) for k in range(n)], "name": names, "l": lists}


SCHEMA = [("ts", "double"), ("name", "string"), ("l", pa.list_(pa.float64()))]
QUERIES = [
    "SELECT * FROM TREE (d, l, name) AS t",
    "SELECT tree, node, name, share FROM TREE (d, l, name, every => 40, span => 90, depth => 3, least => 5) AS t",
    "SELECT match, distance FROM MATCHES (d, l, library => 'stored', measure => 'tree') AS m",
    "SELECT name, match FROM MATCHES (d, l, name, library => 'shown', measure => 'tree', within => 0.1) AS m",
]


def known(db: nile.Database) -> nile.Database:
    """With a stored tree, grown elsewhere, and with examples."""
    with nile.connect() as other:
        other.register("d", examples(200), time="ts")
        db.register("stored", other.sql("SELECT * FROM TREE (d, l, name, every => 120) AS t").to_arrow())
    shown = examples(80)
    db.register("shown", pa.table({"name": shown["name"], "l": pa.array(shown["l"])}).slice(20))
    return db


@pytest.mark.parametrize("text", QUERIES)
def test_a_standing_query_finds_the_same(text: str) -> None:
    data = examples()
    asked, live = known(nile.connect()), known(nile.connect())
    asked.register("d", data, time="ts")
    live.stream("d", SCHEMA, time="ts")
    expected = [tuple(row.values()) for row in asked.sql(text).to_arrow().to_pylist()]
    standing = live.subscribe(text, emit="append")
    draw, at = random.Random(3), 0
    while at < 300:
        to = at + draw.randrange(1, 50)
        live.push("d", {name: column[at:to] for name, column in data.items()})
        at = to
    live.close()
    got = [tuple(row.values()) for batch in standing.poll() for row in batch.to_pylist()]
    assert got == expected
    assert len(expected) >= 5
    query = read_query(text, asked._names)
    assert read_query(query_text(query), asked._names) == query


def test_a_stored_tree_is_followed_as_it_was_grown_and_the_newest_of_several_is() -> None:
    data = examples(200)
    with known(nile.connect()) as db:
        db.register("d", data, time="ts")
        got = db.sql(QUERIES[2]).fetchall()
    usable = [k for k in range(200) if k not in (17, 18, 19)]
    named = [k for k in usable if data["name"][k] is not None]
    tree = tree_by_definition([(data["l"][k], data["name"][k]) for k in named], 10, 1)
    assert [got[k] for k in usable] == [followed(tree, data["l"][k]) for k in usable]
    assert [got[k] for k in (17, 18, 19)] == [("none", float("inf"))] * 3


def spectra(count: int, seconds: float, seed: int) -> list[tuple[str, list[float]]]:
    """Prepared spectra of a material, or of none, relative to the height of the highest channel's noise."""
    draw, told = np.random.default_rng(seed), []
    for k in range(count):
        name = (*LIBRARY, "none", "none")[k % 7]
        expected = rates(None if name == "none" else name, 80.0, float(draw.uniform(15.0, 60.0)))
        net = prepared(draw.poisson(expected * seconds).astype(float), rates(None, 80.0, 0.0) * seconds)
        told.append((name, (net / np.sqrt(seconds)).tolist()))
    return told


def test_materials_are_told_by_a_tree_of_simulated_spectra() -> None:
    assert set(LIBRARY) < set(LINES)
    shown, asked = spectra(700, 8.0, 1), spectra(350, 8.0, 2)
    with nile.connect() as db:
        db.register("materials", {"name": [name for name, _ in shown], "net": [net for _, net in shown]})
        db.register("seen", {"ts": list(range(350)), "net": [net for _, net in asked]}, time="ts")
        text = "SELECT match FROM MATCHES (seen, net, library => 'materials', measure => 'tree') AS m"
        told = [name for (name,) in db.sql(text).fetchall()]
    pairs = list(zip((name for name, _ in asked), told, strict=True))
    right = [truth == said for truth, said in pairs if truth != "none"]
    false = [said != "none" for truth, said in pairs if truth == "none"]
    assert sum(right) / len(right) >= 0.97
    assert sum(false) / len(false) <= 0.03


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("TREE (d, l)", "needed a key, which tells"),
        ("TREE (d, name, name)", "needed lists of numbers in 'name'"),
        ("TREE (d, l, name, depth => 0)", "needed depth from 1 to 64"),
        ("TREE (d, l, name, every => 1.5)", "needed a whole number"),
    ],
)
def test_calls_that_cannot_be_are_refused(call: str, told: str) -> None:
    with nile.connect() as db:
        db.register("d", examples(20), time="ts")
        with pytest.raises(nile.SqlError, match=told):
            db.sql(f"SELECT * FROM {call} AS x")


@pytest.mark.parametrize(
    "spoilt",
    [
        {"node": [0, 1, 3]},
        {"below": [0, None, None]},
        {"above": [3, None, None]},
        {"share": [0.5, None, 1.0]},
        {"threshold": [None, None, None]},
        {"feature": [0, None, None]},
        {"other": [1, 2, 3]},
    ],
)
def test_a_table_that_is_no_tree_is_refused(spoilt: dict[str, Any]) -> None:
    rows = {
        "node": [0, 1, 2], "feature": [1, None, None], "threshold": [0.5, None, None], "below": [1, None, None],
        "above": [2, None, None], "share": [0.5, 1.0, 1.0], "name": ["a", "a", "b"],
    }  # fmt: skip
    text = "SELECT match FROM MATCHES (d, l, library => 'lib', measure => 'tree') AS m"
    with nile.connect() as db:
        db.register("d", {"ts": [1, 2], "l": [[0.0], [1.0]]}, time="ts")
        db.register("lib", rows)
        assert db.sql(text).fetchall() == [("a",), ("b",)]
        db.register("lib", {**rows, **spoilt}, replace=True)
        with pytest.raises(nile.ConfigError, match="needed the rows of one TREE"):
            db.sql(text).fetchall()
