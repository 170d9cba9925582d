"""Conditions between two plans as the links of an outer join."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from nile.expressions.tree import Node, conjunction, conjuncts
from nile.sql import plan as ops
from nile.sql.plan import Plan
from nile.sql.rewriting.pushing import recognised

__all__ = ["links", "quantified"]


def quantified(kind: Literal["semi", "anti"], left: Plan, right: Plan, conditions: Sequence[Node]) -> ops.Outer:
    owner = {field.name: 0 for field in left.fields} | {field.name: 1 for field in right.fields}
    return ops.Outer(kind, left, right, *links(owner, conditions))


def links(owner: Mapping[str, int], conditions: Sequence[Node]) -> tuple[tuple[tuple[str, str], ...], Node | None]:
    """Conditions of a join of two: pairs of columns that must be equal, and the rest.  owner: 0 left, 1 right."""
    equal, rest = [], []
    for node in (part for each in conditions for part in conjuncts(each)):
        pair = recognised(node, owner)
        if pair is None:
            rest.append(node)
        else:
            equal.append(pair if owner[pair[0]] == 0 else pair[::-1])
    return tuple(dict.fromkeys(equal)), conjunction(rest)
