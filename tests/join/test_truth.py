"""The benchmark of true answers: its streams are what their names say, and its figures what they are called."""

from __future__ import annotations

import numpy as np
import pytest

from nile.experiments.benchmarks.truth.family import FAMILY, made
from nile.experiments.benchmarks.truth.truth import Grid, Sampled, measured, outliers, pairs_found, sampled
from nile.operators.common.plan import JoinPlan, default_spec
from nile.operators.join.join import PromisingJoin
from nile.operators.strategies.looking import Look
from nile.preferences.budget import Budget
from nile.preferences.fade import Fade
from nile.pyramid.grid import arrays as ga
from nile.report.truth import exact_pairs
from nile.summaries.costs import ENGINE


def test_the_family_has_two_dozen_members_that_are_the_same_each_time() -> None:
    assert len(FAMILY) >= 24
    for name in ("few keys", "text keys", "null keys", "float keys"):
        one, other = made(name, 200), made(name, 200)
        assert one.pairs == other.pairs > 0
        assert one.left.key.equals(other.left.key)
        assert (np.diff(one.left.ts) >= 0).all()
    assert made("zipf 1", 200, seed=1).pairs != made("zipf 1", 200).pairs


def test_a_cell_is_scored_against_the_exact_answer() -> None:
    joined = made("two scales", 400)
    exact = exact_pairs(joined)
    whole = sampled(joined, exact, 1.0, 2)
    assert (whole.key_mse, whole.age_mse, whole.error, whole.covered, whole.off) == (0.0, 0.0, 0.0, 1.0, 0.0)
    shed = sampled(joined, exact, 0.3, 4, method="shed-uniform")
    assert shed.key_mse > 0.0
    assert shed.total.mean() == pytest.approx(1.0, abs=0.5)


def test_intervals_claimed_are_counted_and_unknown_ones_are_not() -> None:
    known = np.array([True, True, False])
    cell = Sampled(0.0, 0.0, np.ones(3), np.array([0.9, 1.1, 0.0]), np.array([1.1, 1.2, np.inf]), known)
    assert cell.covered == 0.5


def test_a_grid_gives_a_row_for_each_stream_budget_and_question() -> None:
    result = measured(Grid(tuples=300, seeds=4, budgets=(0.1, 0.5), names=("few keys", "near-empty")), ("directory",))
    samples, outlying = 4, 4
    asked = [row for row in result.rows if "strategy" in row]
    assert {(row["streams"], row["budget"]) for row in asked} == {
        (name, budget) for name in ("few keys", "near-empty") for budget in (0.1, 0.5)
    }
    volume = [row for row in result.rows if "pairs" in row]
    assert {row["by"] for row in volume} == {"directory", "countsketch"}
    assert len(volume) == 8
    assert result.work == len(result.rows) == samples + outlying + len(volume) + len(asked)
    assert {row["streams"] for row in result.rows} == {"few keys", "near-empty"}
    assert all(measure.met is not None for measure in result.measures if measure.bar is not None)


def test_the_coins_of_left_and_right_tuples_are_not_each_others() -> None:
    """How many tuples of a few even keys come in on either side tells nothing of the other."""
    joined = made("few keys", 3_000)
    ones = np.ones(1)
    came = []
    for seed in range(60):
        look = Look(joined, seed)
        inside = look.admitted(np.zeros(look.slots, np.uint8), ones, (0.2 * ones, 0.2 * ones))
        came.append((len(inside.left), len(inside.right)))
        shifts = [np.intersect1d(inside.left.place + by, inside.right.place).shape[0] for by in (-2, -1, 0, 1, 2)]
        assert max(shifts) < 0.5 * len(inside.left)
    assert abs(np.corrcoef(np.array(came).T)[0, 1]) < 0.5


def test_asc_misses_no_outlier_where_the_budget_takes_every_tuple_in() -> None:
    for name in ("few uneven keys", "sessions", "text keys"):
        joined = made(name, 1_500)
        exact = exact_pairs(joined)
        found = [outliers(joined, exact, budget, 2, preference="asc") for budget in (0.2, 0.8, 0.99)]
        assert all(precision == 1.0 for _, precision in found)
        assert found[0][0] <= found[1][0] <= found[2][0] == 1.0


@pytest.mark.parametrize("name", ["many keys", "near-empty", "lopsided", "unique on one side"])
def test_asc_over_rare_keys_finds_as_many_outliers_as_any_other_way(name: str) -> None:
    """Hardly a key is too heavy there, and what comes in above a level that cannot be kept is spent in vain."""
    joined = made(name, 4_000)
    exact = exact_pairs(joined)
    own, precision = outliers(joined, exact, 0.05, 3, preference="asc")
    others = [outliers(joined, exact, 0.05, 3, preference=preference)[0] for preference in ("desc", "weighted")]
    others.append(outliers(joined, exact, 0.05, 3, method="shed-uniform", preference="asc")[0])
    assert own >= max(others)
    assert precision == 1.0


def test_asc_within_short_windows_finds_as_many_outliers_as_any_other_way() -> None:
    """Nearly all pairs are outliers there: the busiest slots have most of them."""
    joined = made("short window", 4_000)
    exact = exact_pairs(joined)
    for budget in (0.05, 0.2, 0.5):
        own, precision = outliers(joined, exact, budget, 5, preference="asc")
        others = [outliers(joined, exact, budget, 5, preference=preference)[0] for preference in ("desc", "weighted")]
        assert own >= max(others)
        assert precision == 1.0


@pytest.mark.parametrize("name", ["one key is half", "drifting", "few uneven keys", "many keys"])
def test_desc_by_countsketch_finds_as_many_pairs_as_any_opponent(name: str) -> None:
    """Where windows are short and keys heavy, zones that turned as they ended took a tenth of the grant."""
    joined = made(name, 4_000)
    exact = exact_pairs(joined)
    own = pairs_found(joined, exact, 0.2, 8, guide="countsketch", preference="desc")
    others = ("shed-uniform", "hash-drop", "hash-backlog")
    assert own >= max(pairs_found(joined, exact, 0.2, 8, method=other, preference="desc") for other in others)


@pytest.mark.parametrize("name", ["late heavy key", "many keys", "unique on one side", "sessions", "few keys"])
def test_desc_by_directory_finds_as_many_pairs_as_who_is_told_what_each_key_costs(name: str) -> None:
    """Its whole grant is there at first, as theirs is; where it came with the tuples a quarter of it was left."""
    joined = made(name, 4_000, seed=3)
    exact = exact_pairs(joined)
    for budget in (0.01, 0.05, 0.5):
        own = pairs_found(joined, exact, budget, 4, preference="desc")
        assert own >= pairs_found(joined, exact, budget, 4, method="hash-keys", preference="desc")


def test_zones_turn_for_a_small_part_of_the_grant_under_desc_without_fade_alone() -> None:
    joined = made("one key is half", 4_000)
    turned = {}
    for preference, fade in (("desc", 1.0), ("desc", 0.8), ("asc", 1.0)):
        plan = JoinPlan(
            window=joined.window, budget=Budget(0.5), preference=preference, guide="countsketch", fade=Fade(fade),
            spec=default_spec(joined.window),
        )  # fmt: skip
        join = PromisingJoin(plan, joined.input(ENGINE, ranges=False))
        for _ in join.run():
            pass
        adding = sum(ENGINE.add * float(store.side.zone[ga.ADDS]) for store in join.stores)
        turned[preference, fade] = join.figures.zones
        if (preference, fade) == ("desc", 1.0):
            assert adding <= 2 * 0.005 * join.figures.granted
    assert turned["desc", 1.0] < 5 < min(turned["desc", 0.8], turned["asc", 1.0])
