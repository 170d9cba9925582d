"""What the arrivals of a join grant, and what of that was spent: its account, whatever the number of streams."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.operators.common.start import UNIT
from nile.preferences import state as st

__all__ = ["Granting"]

Array = np.ndarray[Any, Any]


class Granting:
    """state: with the account; _grant: of each arrival from `ARRIVALS_GONE` on, in hundredths of a unit."""

    state: Any
    _grant: Array

    @property
    def spent(self) -> float:
        """What has been spent so far, in units of the cost table."""
        return float(self.state.real[st.SPENT]) / UNIT

    @property
    def credit(self) -> float:
        """What is granted and not yet spent, in units of the cost table."""
        return float(self.state.real[st.CREDIT]) / UNIT

    def take_back(self, units: float) -> None:
        """So much less credit; below 0: more."""
        self.state.real[st.CREDIT] -= UNIT * units

    def grant(self, first: int, amounts: Array) -> None:
        """What arrivals from `first` on grant, in hundredths: float64 [n]."""
        self.granted(first, first + amounts.shape[0])[:] = amounts

    def granted(self, first: int, end: int) -> Array:
        """What arrivals from `first` to `end` grant, in hundredths: float64 [n], to be written to."""
        gone = int(self.state.whole[st.ARRIVALS_GONE])
        return self._grant[first - gone : end - gone]
