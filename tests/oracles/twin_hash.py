"""The mixing of splitmix64, in plain Python (Steele, Lea, Flood, OOPSLA 2014)."""

from __future__ import annotations

__all__ = ["mixed"]

_WORD = (1 << 64) - 1


def mixed(value: int, seed: int = 0) -> int:
    """Of value + seed, each of 64 bits."""
    z = (value + seed) & _WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _WORD
    return z ^ (z >> 31)
