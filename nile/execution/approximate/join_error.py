"""Aggregates over a join to an error instead of a budget: samples that grow until their intervals are narrow.

Each look is a join `weighted` within a larger fraction, from 5 % on, as much larger as the widest interval says; its
intervals share the confidence with those of all other looks (`ErrorTarget.look`).  They are those of a random sample of
keys and pairs and not certified, which `notes` says.  Where half of the exact work would not do, and where groups are
asked for, of which a sample may miss one, the whole answer is made.  What all looks cost is what was spent.
"""

from __future__ import annotations

import math

from nile.answers.join_aggregate import JoinAggregateAnswer
from nile.answers.join_query import BoundJoinAggregate
from nile.operators.inputs.home import Home
from nile.preferences.budget import Budget, BudgetReport
from nile.preferences.error_target import ErrorTarget
from nile.summaries.errors import ErrorTargetMissed

__all__ = ["JoinWithinError", "join_within"]

_FIRST = 0.05
_LEAST_GROWTH = 2.0
_MARGIN = 1.15
_WHOLE = 0.5
"""Beyond this share of the exact work the whole answer is made: it costs less than this look and another."""


class JoinWithinError(JoinAggregateAnswer):
    """The last look's answer.  met: whether every number came within the error; looks: how many there were."""

    met = True
    looks = 1
    spent_before = 0.0
    most = math.inf

    @property
    def budget(self) -> BudgetReport:
        """Asked (the most it may cost) and spent by all looks, as shares of the exact answer's cost."""
        spent = self.spent_before + self.answer.budget.fraction
        return BudgetReport(self.most, spent, "fraction", spent)


def join_within(
    asked: BoundJoinAggregate, home: Home, target: ErrorTarget, *, most: float | None = None
) -> JoinWithinError:
    """Run the join until its aggregates meet the target.  most: what it may cost, a fraction; None: as needed.

    Raises ErrorTargetMissed where the target says refuse, and what `BoundJoinAggregate.answer` raises.
    """
    limit = math.inf if most is None else most
    share = 1.0 if asked.by and most is None else min(_FIRST, limit)
    spent, look = 0.0, 1
    answer = asked.answer(home, share, confidence=target.look(look)).answer
    while True:
        made = JoinWithinError(answer, asked.aggregates, asked.by, asked.join.names, target.look(look))
        made.looks, made.spent_before, made.most = look, spent, limit
        spent = made.budget.spent
        worst = _worst(made)
        grouped = bool(asked.by) and not _is_whole(made)
        if worst <= target.error and not grouped:
            return made
        growth = max(_LEAST_GROWTH, (worst / target.error) ** 2 * _MARGIN) if math.isfinite(worst) else 4.0
        wanted = 1.0 if grouped or share * growth > _WHOLE else share * growth
        if _is_whole(made) or spent + wanted > limit:
            break
        share, look = wanted, look + 1
        answer = answer.again(Budget(fraction=share))
    made.met = False
    told = (
        f"aggregates over a join: needed an error of at most {target.error:g} at confidence {target.confidence:g}; got "
        f"{worst:.3g} for {spent:.3g} of the exact cost"
    )
    if target.otherwise == "refuse":
        raise ErrorTargetMissed(f"{told}; allow more budget or error, or say otherwise='exact'")
    if target.otherwise == "exact" and not _is_whole(made):
        made = JoinWithinError(answer.again(Budget(fraction=1.0)), asked.aggregates, asked.by, asked.join.names)
        made.looks, made.spent_before, made.most = look + 1, spent, limit
        made.notes.append(f"{told}; so it was answered exactly")
        return made
    made.notes.append(f"{told}; `met` says so")
    return made


def _is_whole(made: JoinWithinError) -> bool:
    return made.answer.plan.is_exact


def _worst(made: JoinWithinError) -> float:
    """The largest relative error of a number; 0 of numbers that are known, null ones among them."""
    worst = 0.0
    for row in made.table_numbers:
        for number in row:
            if number.estimate is not None:
                worst = max(worst, number.estimate.relative_error)
            elif not _is_whole(made):
                return math.inf
    return worst
