"""What a row of the tables of functions says: values, then literals, and the kernel that makes one column of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nile.expressions.tree import Kind

__all__ = ["Array", "Literal", "Plain"]

Array = Any
"""A pyarrow Array."""


@dataclass(frozen=True, slots=True)
class Literal:
    """An argument that must be a literal: text of least to most characters, or a whole number from least to most.

    regex: text that is a regular expression; only: one of these; form: the format of times of this function.
    """

    kind: Kind
    least: int = 0
    most: int = 2**31
    zero: bool = True
    optional: bool = False
    regex: bool = False
    only: tuple[str, ...] = ()
    form: str = ""


@dataclass(frozen=True, slots=True)
class Plain:
    """takes: the kinds of values, then literals; gives: the kind of the value; kernel: of an Arrow array for each value
    and the literals' own values; examples: calls over columns t (text), v (number), n (whole number), ts (time);
    leading: whether the literals are written before the values.
    """

    takes: tuple[Kind, ...]
    gives: Kind
    kernel: Callable[..., Array]
    literals: tuple[Literal, ...] = ()
    examples: tuple[str, ...] = ()
    leading: bool = False

    def split(self, arguments: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        """(values, literals) of arguments as they are written."""
        cut = len(self.literals) if self.leading else len(self.takes)
        first, rest = arguments[:cut], arguments[cut:]
        return (rest, first) if self.leading else (first, rest)
