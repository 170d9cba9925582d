"""Actual figures of a pipeline's operators, attributed to the nodes of the statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nile.exact.pipeline.pipeline import Figures
from nile.exact.plan import algebra
from nile.execution.exact.relational import Path

__all__ = ["Actual", "actual_of"]


@dataclass(frozen=True, slots=True)
class Actual:
    """Signed tuples in; positive and negative ones out; rows it was asked for as they stood, or None; bytes."""

    tuples: int
    positive: int
    negative: int
    held: int | None
    memory: int

    def __str__(self) -> str:
        out = f"{self.held:,} held" if self.held is not None else f"+{self.positive:,} -{self.negative:,}"
        state = f"; {self.memory:,} bytes" if self.memory else ""
        return f"actual {self.tuples:,} in, {out}{state}"


def actual_of(operators: Sequence[Figures], made: Mapping[Path, algebra.Plan]) -> dict[Path | None, Actual]:
    """By path in the statement; None: the window of the output, where there is one.

    made: the topmost node of the algebra made for each path.  A statement's node has the bytes of all operators that
    were made for it alone, and of projections that hand its rows on.
    """
    found: dict[Path | None, Actual] = {}
    at = {id(each.node): each for each in operators if each.node is not None}
    named = {id(node) for node in made.values()}
    tops = {path: _handed_on(at[id(node)], operators, named) for path, node in made.items()}
    below = {path: _below(operators, top) for path, top in tops.items()}
    for path, top in tops.items():
        inputs = [p for p in tops if len(p) == len(path) + 1 and p[:-1] == path]
        came = sum(tops[p].positive + tops[p].negative for p in inputs) if inputs else below[path][-1].tuples
        memory = sum(each.memory for each in below[path]) - sum(each.memory for p in inputs for each in below[p])
        found[path] = Actual(came, top.positive, top.negative, top.held, memory)
    for each in operators:
        if each.path is None:
            found[None] = Actual(each.tuples, each.positive, each.negative, each.held, each.memory)
    return found


def _handed_on(top: Figures, operators: Sequence[Figures], named: set[int]) -> Figures:
    """The last of the projections over a node that the statement has no node for: one row out for one in."""
    above = {each.path: each for each in operators if each.path is not None}
    while top.path:
        over = above[top.path[:-1]]
        if not isinstance(over.node, algebra.Project) or id(over.node) in named:
            break
        top = over
    return top


def _below(operators: Sequence[Figures], top: Figures) -> list[Figures]:
    """A node of the algebra and all below it, the node first."""
    path = top.path
    assert path is not None
    return [each for each in operators if each.path is not None and each.path[: len(path)] == path]
