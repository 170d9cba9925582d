"""Every fault of the scoreboard, by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from nile.experiments.faults import (
    collisions,
    counters,
    disorder,
    files,
    full_budget,
    interruption,
    inverse,
    overload,
    signals,
    times,
    values,
)
from nile.experiments.faults.bounds import equal_keys, unread
from nile.experiments.faults.changes import (
    callbacks,
    filled,
    flowing,
    piped,
    polled,
    remote,
    sensors,
    sent,
    served,
    shared,
    sweep,
)
from nile.experiments.faults.fault import Fault
from nile.experiments.faults.surface import casts, closed, stores, streams, types
from nile.summaries.errors import ConfigError

__all__ = ["FAULTS", "chosen"]

_MODULES = (
    files,
    disorder,
    values,
    times,
    counters,
    collisions,
    full_budget,
    inverse,
    types,
    casts,
    closed,
    streams,
    stores,
    unread,
    equal_keys,
)
_LIVE = (overload.BURST, overload.STUCK, overload.SILENT, overload.EMPTY)
_WHOLE = (
    interruption.INTERRUPT,
    sweep.SWEEP,
    signals.SIGNALS,
    callbacks.CALLBACKS,
    callbacks.REENTRANCE,
    flowing.FLOWING,
    flowing.KILLED,
    remote.REMOTE,
    shared.SHARING,
    shared.SHARED_KILLED,
    sensors.SENSORS,
    filled.FILLED,
    polled.POLLED,
    piped.PIPED,
    sent.SENT,
    served.SERVED,
)

FAULTS = {fault.name: fault for fault in (*(module.FAULT for module in _MODULES), *_LIVE, *_WHOLE)}


def chosen(names: Iterable[str]) -> list[Fault]:
    """The faults of these names, all for none.  Raises ConfigError."""
    out = []
    for name in names:
        if name not in FAULTS:
            near = difflib.get_close_matches(name, FAULTS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "leave names out for all of them"
            raise ConfigError(f"bench faults: needed one of {', '.join(FAULTS)}; got {name!r}; {hint}")
        out.append(FAULTS[name])
    return out or list(FAULTS.values())
