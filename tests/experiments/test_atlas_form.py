"""Files of experiments: what is read, what is refused and with which words; no claim compares like with like."""

from __future__ import annotations

from pathlib import Path

import pytest
from workload_atlas import GOOD, written

from nile.experiments.atlas.catalogue.shelf import CATALOGUE, chosen, names
from nile.experiments.atlas.edge import load_experiment
from nile.summaries.errors import ConfigError, SourceMissing


def refused(folder: Path, old: str, new: str) -> str:
    assert old in GOOD
    with pytest.raises(ConfigError) as caught:
        load_experiment(written(folder, GOOD.replace(old, new, 1)))
    return str(caught.value).replace(str(folder), "")


def test_a_file_becomes_points_options_and_claims(tmp_path: Path) -> None:
    mine = load_experiment(written(tmp_path, GOOD))
    assert (mine.name, mine.xs(True), mine.xs(False)) == ("mine", (0.1, 0.9), (0.1, 0.5, 0.9))
    assert [claim.metric for claim in mine.claims] == ["recall", "recall"]
    assert (mine.methods["nile"].own, mine.methods["drop"].own) == (True, False)
    options = mine.options((), mine.methods["drop"], 0.5, quick=False)
    assert options.model_dump()["method"] == "hash-drop"
    assert options.model_dump()["budget"] == 0.5


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("title =", "titel =", "/mine.toml:1: titel: needed a known key; got 'titel'; did you mean 'title'?"),
        ('kind = "join"', 'kind = "joins"', "/mine.toml:5: kind: needed one of"),
        ('"t_hit"]', '"t_hits"]', "/mine.toml:6: metrics[1]: needed one of"),
        ("values = [0.1, 0.5, 0.9]", 'values = "all"', ":11: axis.values: needed a list of one value or more"),
        ("quick = [0.1", "quick = [0.2", "/mine.toml:12: axis.quick: needed values that a full run has too; got 0.2"),
        ("tuples = 300", "tuple = 300", "/mine.toml:17: options.tuple: needed a known key; got 'tuple'; did you mean"),
        ("tuples = 300", "tuples = '300'", ":17: options.tuples: needed a whole number from 100 on; got '300'"),
        ('guide = "directory"', 'guide = "dir"', "/mine.toml:20: methods.nile.guide: needed one of"),
        ("values = [0.1, 0.5, 0.9]", "values = [0.1, -0.5, 0.9]", ":11: axis.values: needed a number above 0"),
        ('option = "budget"', 'option = "buget"', "/mine.toml:9: axis.option: needed a known key; got 'buget'"),
        ('"grows"', '"grow"', "/mine.toml:29: claims[0].predicate: needed one of above, below"),
        ('against = ["drop"]', 'against = ["dorp"]', "did you mean 'drop'?"),
        ('against = ["drop"]', "", "/mine.toml:35: claims[1].predicate: needed against with 'above'; it is missing"),
        ('method = "hash-drop"', 'guide = "directory"', "both of which run 'nile by directory, desc, fade 1'"),
    ],
)  # fmt: skip
def test_mistakes_are_named_with_file_line_and_the_nearest_known_name(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    assert told in refused(tmp_path, old, new)


def test_a_sweep_that_cannot_run_is_named_before_anything_runs(tmp_path: Path) -> None:
    told = refused(tmp_path, "tuples = 300", "tuples = 300\ninterarrival = 10.0")
    assert "needed either a budget, or interarrival together with capacity" in told
    assert "/mine.toml:20: methods.nile:" in told


def test_a_missing_file_and_an_unknown_name_are_named(tmp_path: Path) -> None:
    with pytest.raises(SourceMissing, match="no such file; `nile experiment list` shows what there is"):
        load_experiment(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="got 'promisin-9a'; did you mean 'promising-9a'"):
        chosen(["promisin-9a"])
    with pytest.raises(ConfigError, match="got 'x'; `nile experiment list` shows them all"):
        chosen(["x"])


def test_the_docs_state_the_capacity_of_each_figure_and_each_claim_that_cannot_fail() -> None:
    text = (Path(__file__).parents[2] / "docs" / "atlas.md").read_text(encoding="utf-8")
    every = [load_experiment(CATALOGUE / f"{name}.toml") for name in names()]
    stated = {}
    for line in text.split("| capacity | figures |")[1].split("\n\n")[0].splitlines()[2:]:
        capacity, figures = line.strip("| ").split(" | ")
        stated |= dict.fromkeys(figures.split(", "), float(capacity))
    set_by = {each.name: each.shared["capacity"] for each in every if "capacity" in each.shared}
    assert stated == set_by
    constructed = text.split("| why it cannot fail |")[1].split("\n\n")[0]
    for each in every:
        if any(claim.by_construction for claim in each.claims):
            assert ("nta-1" if each.name.startswith("nta-1") else each.name) in constructed
    held = {claim.says.rstrip(".") for each in every for claim in each.claims if claim.by_construction}
    assert len(held) == 9
    measured = [
        claim for each in every if each.name.startswith("nta") for claim in each.claims if "response" in claim.metric
    ]
    assert measured
    assert not any(claim.by_construction for claim in measured)


@pytest.mark.parametrize("name", names())
def test_every_experiment_of_the_catalogue_is_in_order(name: str) -> None:
    """Loading checks keys, types, sweeps, and that no claim compares an operator with itself."""
    each = load_experiment(CATALOGUE / f"{name}.toml")
    assert each.claims
    assert len(each.xs(True)) <= len(each.xs(False))
    assert len(each.seeds_of(True)) >= 3 or each.kind.by_clock
    assert len(each.seeds_of(False)) >= 5 or each.kind.by_clock
