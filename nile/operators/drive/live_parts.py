"""What live joins have in common: plans that they take, the input that they begin with, and how they are paid."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from nile.operators.common.data import JoinInput
from nile.operators.common.plan import JoinPlan
from nile.operators.common.start import UNIT
from nile.operators.join.follower import follow_share
from nile.summaries.errors import ConfigError, NotYet
from nile.summaries.hashing import Encoded

__all__ = ["Afforded", "checked", "no_input"]


def checked(plan: JoinPlan) -> JoinPlan:
    """The plan.  Raises NotYet, ConfigError for one that has no form over live streams."""
    if plan.method != "nile":
        raise NotYet(
            f"live join: needed method 'nile'; got {plan.method!r}, which has no form over live streams yet; leave "
            "method out, or ask sql() over what is kept"
        )
    if plan.pace.is_replay and plan.budget.share is None:
        raise NotYet(
            "live join: needed tuples at their own pace; got a replay, which needs the whole input; leave replay out"
        )
    if plan.window is None:
        raise ConfigError(
            "live join: needed a window, beyond which tuples are evicted; got none, which would keep all of both "
            "streams for good; say WINDOW"
        )
    return plan


class Afforded(ABC):
    """What a live join does for those who buy it a fraction push by push (`nile.operators.common.contract`).

    plan, join: what was asked, and the operator that it is fed to.
    """

    plan: JoinPlan
    join: Any

    @property
    def arrivals(self) -> int:
        """Tuples pushed, all streams together."""
        return int(self.join.arrivals)

    @property
    def fed(self) -> int:
        """Arrivals it has gone on to."""
        return int(self.join.fed)

    @property
    def spent(self) -> float:
        """Spent so far, in units of the cost table."""
        return float(self.join.spent)

    @property
    def credit(self) -> float:
        """Granted and not yet spent, in units of the cost table; where rates follow grants, what they take for that:
        what there would be had as many outputs been drawn as were to be expected.
        """
        return float(self.join.credit) - self._undrawn

    @property
    def to_come(self) -> float:
        """What arrivals that it has not gone on to will grant, in units of the cost table."""
        return float(self.join.granted(self.fed, self.arrivals).sum()) / UNIT

    def take_back(self, units: float) -> None:
        """So much less credit; below 0: more."""
        self.join.take_back(units)

    def afford(self, end: int, share: float, planned: float) -> None:
        """Those up to `end` grant a share of it."""
        if self._follows:
            to_come = planned * self.join.granted(self.fed, self.arrivals)
            follow_share(self.join.state, self.plan.fraction * planned, to_come)
            self._deal(share / planned)
        self.join.granted(self.fed, end)[:] *= share

    @property
    @abstractmethod
    def _follows(self) -> bool:
        """Whether rates follow grants."""

    @property
    @abstractmethod
    def _undrawn(self) -> float:
        """What outputs cost that were to be expected and not drawn, in units; 0 where rates do not follow."""

    @abstractmethod
    def _deal(self, share: float) -> None:
        """Grants are multiplied by a share of which rates know nothing."""


def no_input() -> JoinInput:
    """The input of a join that is fed as tuples come."""
    none = Encoded(codes=np.zeros(0, np.int32), hashes=np.zeros(0, np.uint64))
    return JoinInput(
        left_ts=np.zeros(0, np.int64), right_ts=np.zeros(0, np.int64), left=none, right=none,
        order=np.zeros(0, np.int8), costs=np.zeros(0), keys=0,
    )  # fmt: skip
