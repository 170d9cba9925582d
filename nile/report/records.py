"""A run of a join as a record: what was asked, what came, what it cost; pages and tables are made of these."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from nile.report.metrics import ExactPairs, Obtained, score

if TYPE_CHECKING:
    from nile.operators.common.plan import JoinPlan
    from nile.report.answered import AnsweredJoin

__all__ = ["asked_of", "finite", "join_record"]

_SECOND = 1e9


def join_record(answer: AnsweredJoin, exact: ExactPairs) -> dict[str, Any]:
    """The record of an answer of pairs or of ranges, scored against the exact pairs.  Runs it to its end.

    A figure that does not exist is None.
    """
    pairs, plan = answer.pairs(), answer.plan
    figures, accounting = answer.figures, answer.accounting
    obtained = Obtained(pairs.left, pairs.right, pairs.weight)
    told = score(exact, obtained, window=plan.window, outlier_cap=plan.outlier_cap)
    total = accounting["left"] + accounting["right"]
    asked = asked_of(plan)
    sketched = asked["structure"] is not None
    record: dict[str, Any] = {
        **asked,
        **told.record(),
        "records": figures.outputs,
        "coverage": answer.coverage,
        "budget_spent": answer.budget.spent,
        "fraction_spent": answer.budget.fraction,
        "reproducible": answer.budget.reproducible,
        "insert_cost": figures.t_ins,
        "hit_cost": figures.t_hit,
        "interarrival_cost": figures.interarrival,
        "outputs_per_input": _per(figures.outputs, total.tuples_in),
        "outputs_per_input_predicted": figures.predicted_outputs_per_input,
        "unspent": figures.unspent,
        "not_taken": figures.not_taken,
        "regions_per_tuple": _per(figures.regions, figures.admitted),
        "zones": figures.zones if sketched else None,
        "zones_changed": figures.changes if sketched else None,
        "sketch_rows": plan.spec.rows if sketched and plan.spec.structure != "T1" else None,
        "tuples_in": total.tuples_in,
        "tuples_shed": total.shed,
        "accounting": {side: told_of.as_dict() for side, told_of in accounting.items()},
    }
    return finite(record)


def asked_of(plan: JoinPlan) -> dict[str, Any]:
    """What a plan asks for.  Only `nile` has guides; a structure has `paper`, and `nile` where sketches guide it."""
    guide = plan.guide if plan.method == "nile" else None
    exponential = plan.pace.replay == "exponential"
    return {
        "method": plan.method,
        "guide": guide,
        "structure": plan.spec.structure if plan.method == "paper" or guide == "countsketch" else None,
        "preference": plan.preference,
        "budget": plan.budget.amount,
        "budget_unit": plan.budget.unit,
        "seed": plan.seed,
        "output": plan.output,
        "costs": plan.costs.name,
        "window_s": None if plan.window is None else plan.window / _SECOND,
        "outlier_cap": plan.outlier_cap,
        "replay": plan.pace.replay,
        "replay_mean_s": plan.pace.mean / _SECOND if exponential else None,
        "bursts": None if plan.pace.bursts is None else asdict(plan.pace.bursts),
        "forgetting": plan.spec.forgetting,
        "fade": plan.fade.factor,
    }


def finite(record: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN and no infinity: a figure that does not exist is null."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in record.items()
    }


def _per(total: float, count: int) -> float | None:
    return total / count if count else None
