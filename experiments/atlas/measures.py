"""Every kind of experiment there is.  Importing a module of kinds registers what it defines."""

from __future__ import annotations

from nile.experiments.atlas import (
    change_kind,
    clock_kind,
    coverage_kind,
    join_kind,
    pipeline_kind,
    schedule_kind,
    selection_kind,
    sketch_kind,
)
from nile.experiments.atlas.kinds import kind_of, kinds
from nile.experiments.atlas.windows import selfscheduling_kind, window_kind

__all__ = [
    "change_kind",
    "clock_kind",
    "coverage_kind",
    "join_kind",
    "kind_of",
    "kinds",
    "pipeline_kind",
    "schedule_kind",
    "selection_kind",
    "selfscheduling_kind",
    "sketch_kind",
    "window_kind",
]
