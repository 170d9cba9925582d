"""Which columns a join of streams is asked for, and which it only joins by."""

from __future__ import annotations

from collections.abc import Sequence

from nile.expressions.tree import columns_of
from nile.sql.plan import Filter, Join, Limit, Plan, Project, Stream

__all__ = ["key_columns", "looked_at"]


def looked_at(above: Sequence[Filter | Project]) -> frozenset[str] | None:
    """The columns of what is below that selections and projections, outermost first, look at; None: all."""
    names: set[str] = set()
    for node in above[::-1]:
        if isinstance(node, Project):
            return frozenset(names.union(*(columns_of(item.node) for item in node.items)))
        names.update(columns_of(node.condition))
    return None


def key_columns(plan: Plan) -> dict[str, str]:
    """Of the sources of a join of streams, by name, the column that serves as its key and for nothing else."""
    above: list[Filter | Project] = []
    while isinstance(plan, Limit | Filter | Project):
        above.extend([] if isinstance(plan, Limit) else [plan])
        plan = plan.input
    wanted = looked_at(above)
    if wanted is None or not isinstance(plan, Join):
        return {}
    used = wanted.union(() if plan.condition is None else columns_of(plan.condition))
    found: dict[str, str | None] = {}
    for leaf in plan.inputs:
        if not isinstance(leaf, Stream):
            return {}
        looked = used.union(() if leaf.where is None else columns_of(leaf.where))
        own = {field.name for field in leaf.fields}
        keys = {name for pair in plan.equal for name in pair if name in own}
        key = keys.pop().removeprefix(f"{leaf.alias}.") if len(keys) == 1 and not keys & looked else None
        plain = key not in (None, leaf.time) and (leaf.window is None or isinstance(leaf.window, int))
        if not plain or found.get(leaf.name, key) != key:
            key = None
        found[leaf.name] = key
    return {name: key for name, key in found.items() if key is not None}
