"""What plans a live join takes, and the input that it begins with."""

from __future__ import annotations

import numpy as np

from nile.operators.common.data import JoinInput
from nile.operators.common.plan import JoinPlan
from nile.summaries.errors import ConfigError, NotYet
from nile.summaries.hashing import Encoded

__all__ = ["checked", "no_input"]


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


def no_input() -> JoinInput:
    """The input of a join that is fed as tuples come."""
    none = Encoded(codes=np.zeros(0, np.int32), hashes=np.zeros(0, np.uint64))
    return JoinInput(
        left_ts=np.zeros(0, np.int64), right_ts=np.zeros(0, np.int64), left=none, right=none,
        order=np.zeros(0, np.int8), costs=np.zeros(0), keys=0,
    )  # fmt: skip
