"""How precise the answer of a plan is whose synopses have too little memory, from the precision of its parts.

The precision of a stream is (FP, FN): the share of its tuples that are wrong, and the share of the exact tuples that it
misses.  Each operator turns memory into precision, and the precision of its inputs into that of its output, bottom up:

    Distinct, Except, Intersect   a Bloom filter, by bits
    Join                          of each side a sample of the tuples to come back to, by `TUPLE_BITS` each
    Select, Union                 need no memory that could be lessened

Sizes are those that are expected of values drawn at random from one domain, keys of joins included; what is lost at one
operator is lost independently of what others lose.
Source: STREAM (CIDR 2003), section 5.3, which leaves the formulas out.  It counts FN for each correct tuple that comes
out; here it is for each that should, so that both lie in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "TUPLE_BITS",
    "Distinct",
    "Except",
    "Expected",
    "Intersect",
    "Join",
    "Leaf",
    "Node",
    "Select",
    "Union",
    "expected",
    "false_positives",
    "hashes_of",
    "slots_of",
]

TUPLE_BITS = 256
"""What a tuple takes in the synopsis of a join."""
_MOST_HASHES = 8
_POINTS = 32


@dataclass(frozen=True, slots=True)
class Leaf:
    """An exact stream of `size` different values, each `repeats` times; where that is not 1, for `Distinct` alone."""

    size: int
    repeats: int = 1


@dataclass(frozen=True, slots=True)
class Select:
    """A share of the values."""

    input: Node
    share: float


@dataclass(frozen=True, slots=True)
class Distinct:
    """Each value once: one that a Bloom filter has seen does not come out."""

    input: Node


@dataclass(frozen=True, slots=True)
class Except:
    """Values of the left that are not in the Bloom filter of the right, which is there before."""

    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Intersect:
    """Values of the left that are in the Bloom filter of the right, which is there before."""

    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Union:
    """Values of either side, each once."""

    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Join:
    """Pairs of equal keys, of so many; a pair is found if the tuple that came first was kept.

    No operator of sets may stand above it, for pairs of one tuple are lost together.
    """

    left: Node
    right: Node
    keys: int


Node = Leaf | Select | Distinct | Except | Intersect | Union | Join


@dataclass(frozen=True, slots=True)
class Expected:
    """A stream: tuples of the exact one, those of them that are in it, and wrong ones."""

    size: float
    right: float
    wrong: float

    @property
    def fp(self) -> float:
        """The share of what comes that is wrong: 0 of nothing, which less than a tuple is more often than not."""
        came = self.right + self.wrong
        return -math.expm1(-came) * self.wrong / came if came > 0 else 0.0

    @property
    def fn(self) -> float:
        """The share of what should come that does not."""
        return max(0.0, 1.0 - self.right / self.size) if self.size > 0 else 0.0

    @property
    def error(self) -> float:
        """What is to be small: FP + FN."""
        return self.fp + self.fn


def hashes_of(bits: int, values: float) -> int:
    """Hash functions of a Bloom filter of so many bits for so many values."""
    return max(1, min(_MOST_HASHES, round(math.log(2) * bits / max(values, 1.0))))


def false_positives(bits: int, hashes: int, values: float) -> float:
    """Of values that are not among those in a Bloom filter: the share that seem to be."""
    if bits <= 1:
        return 1.0 if bits < 1 or values > 0 else 0.0
    return (1.0 - math.exp(hashes * values * math.log1p(-1.0 / bits))) ** hashes


def slots_of(node: Node) -> int:
    """How many synopses a plan has."""
    match node:
        case Leaf():
            return 0
        case Select():
            return slots_of(node.input)
        case Distinct():
            return slots_of(node.input) + 1
        case Union():
            return slots_of(node.left) + slots_of(node.right)
        case Join():
            return slots_of(node.left) + slots_of(node.right) + 2
        case _:
            return slots_of(node.left) + slots_of(node.right) + 1


def expected(node: Node, domain: int, memory: Sequence[int]) -> Expected:
    """What comes out of a plan over values of a domain.  memory: bits of each synopsis, inputs before their operator.

    Cost: O(nodes).
    """
    return _expected(node, domain, list(memory))


def _expected(node: Node, domain: int, memory: list[int]) -> Expected:
    match node:
        case Leaf():
            return Expected(node.size, node.size, 0.0)
        case Select():
            below = _expected(node.input, domain, memory)
            return Expected(*(node.share * each for each in (below.size, below.right, below.wrong)))
        case Distinct():
            below = _expected(node.input, domain, memory)
            bits, values = memory.pop(0), below.right + below.wrong
            hashes = hashes_of(bits, values)
            points = [(k + 0.5) / _POINTS for k in range(_POINTS)]  # closer where the filter is nearly empty
            seen = sum(3.0 * x * x * false_positives(bits, hashes, values * x**3) for x in points) / _POINTS
            passed = max(1.0 - seen, min(1.0, 1.0 / max(values, 1.0)))  # the first comes out
            return Expected(below.size, below.right * passed, below.wrong * passed)
    left, right = _expected(node.left, domain, memory), _expected(node.right, domain, memory)
    match node:
        case Join():
            kept = 0.0
            for side in (left, right):
                kept += min(1.0, memory.pop(0) / TUPLE_BITS / max(side.right + side.wrong, 1.0)) / 2.0
            both = (left.right + left.wrong) * (right.right + right.wrong)
            good = left.right * right.right
            return Expected(
                left.size * right.size / node.keys, kept * good / node.keys, kept * (both - good) / node.keys
            )
        case Union():
            return _union(left, right, domain)
        case _:
            values = right.right + right.wrong
            bits = memory.pop(0)
            seems = false_positives(bits, hashes_of(bits, values), values)
            return _filtered(node, left, right, domain, seems)


def _stray(side: Expected, domain: int) -> float:
    """The share of values that are not in a stream, but come with it."""
    return side.wrong / max(domain - side.size, 1.0)


def _union(left: Expected, right: Expected, domain: int) -> Expected:
    both = left.size * right.size / domain
    size = left.size + right.size - both
    good = both * (1.0 - left.fn * right.fn)
    for own, other in ((left, right), (right, left)):
        good += (own.size - both) * (1.0 - own.fn * (1.0 - _stray(other, domain)))
    stray = 1.0 - (1.0 - _stray(left, domain)) * (1.0 - _stray(right, domain))
    return Expected(size, good, max(domain - size, 0.0) * stray)


def _filtered(node: Except | Intersect, left: Expected, right: Expected, domain: int, seems: float) -> Expected:
    """Of values of the left some are in the right: those are found there so often, others so often."""
    both = left.size * right.size / domain
    found = 1.0 - right.fn * (1.0 - seems)
    stray = 1.0 - (1.0 - _stray(right, domain)) * (1.0 - seems)
    if isinstance(node, Except):
        found, stray = 1.0 - found, 1.0 - stray
    inside, outside = (both, left.size - both) if isinstance(node, Intersect) else (left.size - both, both)
    good, bad = (found, stray) if isinstance(node, Intersect) else (stray, found)
    share = right.size / domain
    wrong = left.wrong * (share * found + (1.0 - share) * stray)
    return Expected(inside, inside * (1.0 - left.fn) * good, outside * (1.0 - left.fn) * bad + wrong)
