"""Random plans with too little memory: how well their precision is foretold, and what dealing memory out is worth."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import fmean, stdev

from nile.experiments.benchmarks.harness import Measure
from nile.runtime.allocating import allocated, equal_split
from nile.runtime.approximated import measured
from nile.runtime.precision import (
    TUPLE_BITS,
    Distinct,
    Except,
    Intersect,
    Join,
    Leaf,
    Node,
    Select,
    Union,
    expected,
    slots_of,
)

__all__ = ["drawn_plan", "foretold"]

DOMAIN = 100_000
POINTS_BAR, WORSE_BAR, HALF_BAR = 2.0, 1.0, 0.7
_SEEDS = (4, 64)
_SURE, _SURER, _NEAR = 0.5, 0.2, 1.0
"""Standard errors, in points, of what is measured: with more, another seed is drawn, from the fewest up to the most.

The first where that is as near as this to what was foretold; of 4,000 means the farthest is off by four such errors.
"""
_LEAST = 1_500
"""Tuples of every node: precision is a mean, which few tuples scatter about."""


def drawn_plan(draw: random.Random) -> tuple[Node, int]:
    """(a plan of two synopses or more, bits for all of them: too few, and by how much differs)."""
    while True:
        plan = _joins(draw, draw.choice([0, 1, 1, 2]))
        if slots_of(plan) >= 2 and min(_sizes(plan)) >= _LEAST:
            needs = _needs(plan)
            return plan, max(64, int(sum(needs) * draw.choice([0.2, 0.35, 0.5, 0.7])))


def _joins(draw: random.Random, many: int) -> Node:
    if not many:
        return _sets(draw, draw.choice([1, 2, 2, 3]))
    left, right = _joins(draw, many - 1), _sets(draw, draw.choice([0, 1, 2]))
    sizes = [max(_size(each), 1.0) for each in (left, right)]
    keys = int(sizes[0] * sizes[1] / draw.uniform(10_000, 40_000)) + 1
    made: Node = Join(left, right, keys)
    return Select(made, draw.uniform(0.5, 1.0)) if draw.random() < 0.3 else made


def _sets(draw: random.Random, deep: int) -> Node:
    if not deep:
        size = int(10 ** draw.uniform(3.4, 4.8))
        return Distinct(Leaf(size, draw.randint(2, 4))) if draw.random() < 0.5 else Leaf(size)
    left, right = _sets(draw, deep - 1), _sets(draw, draw.choice([0, deep - 1]))
    what = draw.choice([Except, Except, Intersect, Union, Select])
    return Select(left, draw.uniform(0.3, 1.0)) if what is Select else what(left, right)


def _needs(node: Node) -> list[float]:
    """Bits of each synopsis with which it hardly errs."""
    match node:
        case Leaf():
            return []
        case Select():
            return _needs(node.input)
        case Distinct():
            return [*_needs(node.input), 10.0 * _size(node.input)]
    below = [*_needs(node.left), *_needs(node.right)]
    match node:
        case Union():
            return below
        case Join():
            return [*below, TUPLE_BITS * _size(node.left), TUPLE_BITS * _size(node.right)]
        case _:
            return [*below, 10.0 * _size(node.right)]


def _sizes(node: Node) -> list[float]:
    if isinstance(node, Leaf):
        return [_size(node)]
    below = [node.input] if isinstance(node, Select | Distinct) else [node.left, node.right]
    return [_size(node), *(size for each in below for size in _sizes(each))]


def _size(node: Node) -> float:
    return expected(node, DOMAIN, [10**9] * slots_of(node)).size


def foretold(plans: int, seed: int = 13) -> list[Measure]:
    """(FP, FN) foretold and measured, memory dealt out beside an equal split."""
    draw = random.Random(seed)
    off, shares, seeds = [], [], []
    for number in range(plans):
        plan, bits = drawn_plan(draw)
        errors = []
        memories = [equal_split(plan, bits), allocated(plan, DOMAIN, bits, _needs(plan))]
        told_of = [expected(plan, DOMAIN, memory) for memory in memories]
        found = _measured(plan, memories, number, [each for told in told_of for each in (told.fp, told.fn)])
        seeds.append(len(found))
        for which, told in enumerate(told_of):
            fp, fn = (fmean(each[which][k] for each in found) for k in (0, 1))
            off.append(100.0 * max(abs(told.fp - fp), abs(told.fn - fn)))
            errors.append(fp + fn)
        shares.append(errors[1] / errors[0] if errors[0] else 1.0)
    shares.sort()
    over = sum(each > POINTS_BAR for each in off)
    return [
        Measure("precision of plans: foretold beside measured, most", max(off), "points", POINTS_BAR, most=True,
                about=f"{plans:,} plans, each under two splits of its memory; mean {fmean(off):.2f}, {over} of "
                      f"{len(off):,} above; {fmean(seeds):.1f} seeds"),
        Measure("memory dealt out: most error beside an equal split", shares[-1], "times", WORSE_BAR, most=True),
        Measure("memory dealt out: median error beside an equal split", shares[len(shares) // 2], "times", HALF_BAR,
                most=True, about=f"mean {fmean(shares):.2f}"),
    ]  # fmt: skip


def _measured(
    plan: Node, memories: Sequence[Sequence[int]], number: int, told: Sequence[float]
) -> list[list[tuple[float, float]]]:
    """(FP, FN) under each split, seed by seed, as many as it takes for their means to be sure.

    told: what is foretold of each of them.
    """
    least, most = _SEEDS
    found: list[list[tuple[float, float]]] = []
    while len(found) < most:
        found.append(measured(plan, DOMAIN, memories, number * most + len(found)))
        if len(found) >= least:
            columns = [[each[which][k] for each in found] for which in range(len(memories)) for k in (0, 1)]
            error = 100.0 * max(map(stdev, columns)) / math.sqrt(len(found))
            off = 100.0 * max(abs(fmean(each) - one) for each, one in zip(columns, told, strict=True))
            if error <= (_SURE if off <= _NEAR else _SURER):
                break
    return found
