"""Which columns a join is asked for, which it joins by, and which it only joins by."""

from __future__ import annotations

from collections.abc import Sequence

from nile.expressions.binding import kind_of
from nile.expressions.tree import Column, Compare, Node, columns_of
from nile.sql.plan import Filter, Join, Limit, Plan, Project, Stream

__all__ = ["equalities", "key_columns", "looked_at", "one_key", "shared_keys"]


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


def equalities(node: Join, pairs: Sequence[tuple[str, str]]) -> list[Node]:
    """Pairs of a join's columns as conditions that they are equal."""
    fields = {field.name: Column(field.name, kind_of(field.type)) for field in node.fields}
    return [Compare("=", fields[a], fields[b]) for a, b in pairs]


def one_key(node: Join, named: frozenset[str] = frozenset()) -> tuple[tuple[str, ...] | None, list[tuple[str, str]]]:
    """One column of each input that must all be equal, if there is such a key, and the pairs that are left.

    named: columns, of which the key is one where several keys would do.
    """
    keys, _ = shared_keys(node, named)
    return (keys[0], _left(node, keys[:1])) if keys else (None, list(node.equal))


def shared_keys(node: Join, named: frozenset[str] = frozenset()) -> tuple[list[tuple[str, ...]], list[tuple[str, str]]]:
    """The parts of a join's key, of each one column of every input that must all be equal, and the pairs that are left.

    named: columns, of which the first part is one where several would do.
    """
    owner = {field.name: k for k, each in enumerate(node.inputs) for field in each.fields}
    aliases = {name.partition(".")[0]: k for name, k in owner.items()}
    classes: list[set[str]] = []
    for pair in node.equal:
        for name in pair:  # what a summary is of may be computed, and no column of the input
            owner.setdefault(name, aliases[name.partition(".")[0]])
        touching = [one for one in classes if one & set(pair)]
        classes = [one for one in classes if one not in touching] + [set(pair).union(*touching)]
    keys = []
    for one in sorted(classes, key=named.isdisjoint):
        key: dict[int, str] = {}
        for name in sorted(one):
            key.setdefault(owner[name], name)
        if len(key) == len(node.inputs):
            keys.append(tuple(key[k] for k in range(len(node.inputs))))
    return keys, _left(node, keys)


def _left(node: Join, keys: Sequence[tuple[str, ...]]) -> list[tuple[str, str]]:
    """The pairs that are not equal as they are parts of such a key."""
    return [pair for pair in node.equal if not any(set(pair) <= set(key) for key in keys)]
