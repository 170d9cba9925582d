"""How the memory of a plan is dealt out to its synopses, so that its answer is as precise as it can be.

Source: STREAM (CIDR 2003), section 5.3: a nonlinear problem for a packaged solver there.  Here bits move from the
synopsis that loses least to the one that gains most, in steps that get smaller, which needs neither derivatives nor
that more memory is always better.
"""

from __future__ import annotations

from collections.abc import Sequence

from nile.runtime.precision import Node, expected, slots_of
from nile.summaries.errors import ConfigError

__all__ = ["allocated", "equal_split"]

_HALVINGS = 8
_MOVES = 6
_WORTH = 0.02
"""FP + FN less than by an equal split: for less nothing is moved, since sizes are only expected."""


def equal_split(node: Node, bits: int) -> list[int]:
    """As many bits for each synopsis."""
    many = slots_of(node)
    return [bits // many + (k < bits % many) for k in range(many)]


def allocated(node: Node, domain: int, bits: int, sizes: Sequence[float] = ()) -> list[int]:
    """Bits of each synopsis of a plan, in the order of `expected`, `bits` together.

    sizes: parts to begin with, beside an equal split.  Never expected to be worse than an equal split.
    Cost: at most 2 * synopses * 48 evaluations of the plan for each beginning.  Raises ConfigError.
    """
    many = slots_of(node)
    if bits < many or many < 1:
        raise ConfigError(
            f"allocation: needed a plan with synopses and a bit for each; got {many} and {bits} bits; give more memory"
        )
    equal = equal_split(node, bits)
    begins = [equal]
    if sizes:
        parts = [max(1, int(bits * size / sum(sizes))) for size in sizes]
        parts[parts.index(max(parts))] += bits - sum(parts)
        begins.append(parts)
    best = min((_moved(node, domain, begin) for begin in begins), key=lambda each: expected(node, domain, each).error)
    gain = expected(node, domain, equal).error - expected(node, domain, best).error
    return best if gain >= _WORTH else equal


def _moved(node: Node, domain: int, begin: Sequence[int]) -> list[int]:
    held = list(begin)
    error = expected(node, domain, held).error
    step = sum(held) // 4
    for _ in range(_HALVINGS):
        for _ in range(_MOVES):
            more = [_changed(node, domain, held, k, step) for k in range(len(held))]
            less = [_changed(node, domain, held, k, -step) for k in range(len(held))]
            pairs = sorted(
                (more[into] + less[out], into, out)
                for into in range(len(held))
                for out in range(len(held))
                if into != out and held[out] > step
            )
            for _, into, out in pairs[:3]:
                moved = list(held)
                moved[into], moved[out] = moved[into] + step, moved[out] - step
                if (found := expected(node, domain, moved).error) < error - 1e-9:
                    held, error = moved, found
                    break
            else:
                break
        step = max(1, step // 2)
    return held


def _changed(node: Node, domain: int, held: list[int], k: int, step: int) -> float:
    return expected(node, domain, [*held[:k], max(1, held[k] + step), *held[k + 1 :]]).error
