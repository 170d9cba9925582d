"""Which groups only count the pairs of a join, so that no pair has to be made.

A tuple that comes makes as many pairs as the other side has tuples of its key; of all these a group that only counts
them, under what equals in all of them, needs one and how many they are: O(1) a tuple instead of O(1) a pair.
"""

from __future__ import annotations

from nile.exact.plan.algebra import Group, Join, Plan, Project
from nile.exact.state.arrow import pa

__all__ = ["counts_alone"]


def counts_alone(plan: Group) -> bool:
    """Whether all pairs of one key are alike to the group: it counts rows, of a join, under its keys or nothing."""
    if any(each.column is not None for each in plan.aggregates):
        return False
    below: Plan = plan.input
    between: list[Project] = []
    while isinstance(below, Project):
        between.append(below)
        below = below.input
    if not isinstance(below, Join) or below.test is not None or below.promises:
        return False
    return not plan.by or (bool(between) and between[-1].reads is not None and between[-1].reads <= _alike(below))


def _alike(join: Join) -> set[str]:
    """Columns that are the same, bit by bit, in all pairs of one key."""
    found = set()
    for one, other in join.on:
        kinds = [side.schema.field(name).type for side, name in ((join.left, one), (join.right, other))]
        if kinds[0] == kinds[1] and not pa.types.is_floating(kinds[0]):  # 0.0 and -0.0 are equal, and not alike
            found |= {one, other}
    return found
