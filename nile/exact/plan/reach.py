"""How far a change of one row affects its neighbours in an order."""

from __future__ import annotations

from dataclasses import dataclass

from nile.exact.state.held import MOST

__all__ = ["Reach"]


@dataclass(frozen=True, slots=True)
class Reach:
    """How far rows of a partition in order feel a change; MOST: to its end.

    back, ahead: how many rows before and after one that comes or goes may get other values; before, beyond: how many
    rows before and after it the value of a row is worked out from; peers: rows equal in order to it may get others too.
    cut: (row_number | rank | dense_rank, k): nobody reads rows of which that is more than k.
    """

    back: int = MOST
    ahead: int = MOST
    before: int = MOST
    beyond: int = MOST
    peers: bool = False
    cut: tuple[str, int] | None = None
