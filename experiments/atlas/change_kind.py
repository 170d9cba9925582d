"""What ends a time zone: how soon a change of the stream is seen, and how often one is seen that is not there.

A stream of Zipf items; every `stretch` tuples a `share` of the probability moves to other items, the frequencies
staying what they were (`keys`), or the frequencies themselves change from flat to skewed and back (`skew`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from nile.experiments.atlas.kinds import Data, Kind, Metric, Options, register
from nile.experiments.run.fields import one_of
from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.spec import CONFIDENCES, SummarySpec
from nile.summaries.heavy import pa

__all__ = ["CHANGE", "ChangeOptions"]

Array = np.ndarray[Any, Any]
_ITEMS = 1_000
_EXPONENT = 1.1
_PATIENCE = 4_096  # tuples after a change within which a zone's end counts as seeing it


class ChangeOptions(Options):
    """share: of the probability that moves at a change; stretch: tuples between two; changes: how many."""

    share: Annotated[float, Field(ge=0, le=1)] = Field(1.0, description="a share in [0, 1]")
    what: Annotated[str, one_of(("keys", "skew"))] = Field("keys", description="keys or skew")
    stretch: Annotated[int, Field(ge=1024)] = Field(16_384, description="a whole number from 1024 on")
    changes: Annotated[int, Field(ge=1, le=1000)] = Field(6, description="a whole number from 1 to 1000")
    confidence: Annotated[str, one_of(CONFIDENCES)] = Field(
        "two-window", description=f"one of {', '.join(CONFIDENCES)}"
    )
    threshold: Annotated[float, Field(ge=0, lt=1)] = Field(0.02, description="a confidence in [0, 1)")


@dataclass(frozen=True, slots=True)
class _Stream:
    """keys: int64 [n]; changes: the ordinals at which the stream changes, empty when nothing moves."""

    keys: Array
    changes: Array


def _prepare(options: ChangeOptions, seed: int, _data: Data | None) -> _Stream:
    rng = np.random.Generator(np.random.PCG64([seed, 31]))
    holders = rng.permutation(_ITEMS)
    parts = []
    for stretch in range(options.changes + 1):
        exponent = _EXPONENT
        if stretch and options.what == "keys":
            holders = _moved(rng, holders, options.share)
        elif options.what == "skew":
            exponent *= 1.0 - options.share * (stretch % 2)
        reached = np.cumsum(np.arange(1, _ITEMS + 1, dtype=np.float64) ** -exponent)
        drawn = np.searchsorted(reached, rng.random(options.stretch) * reached[-1], side="right")
        parts.append(holders[np.minimum(drawn, _ITEMS - 1)])
    at = np.arange(1, options.changes + 1) * options.stretch
    return _Stream(np.concatenate(parts).astype(np.int64), at if options.share > 0 else at[:0])


def _moved(rng: np.random.Generator, holders: Array, share: float) -> Array:
    """Who holds each rank after a change: ranks drawn until they have `share` of the probability trade places."""
    weights = np.arange(1, _ITEMS + 1, dtype=np.float64) ** -_EXPONENT
    ranks = rng.permutation(_ITEMS)
    taken = ranks[: int(np.searchsorted(np.cumsum(weights[ranks]) / weights.sum(), share - 1e-12)) + 1]
    moved = holders.copy()
    if share > 0 and taken.shape[0] > 1:
        moved[taken] = holders[np.roll(taken, 1)]
    return moved


def _measure(given: _Stream, options: ChangeOptions, seed: int) -> Mapping[str, float | None]:
    n = given.keys.shape[0]
    spec = SummarySpec(
        granularity=1 << 40, confidence=options.confidence, threshold=options.threshold, seed=seed, max_zones=4096
    )
    manager = SummaryManager(spec)
    manager.ingest(np.arange(n, dtype=np.int64), pa.array(given.keys))
    ends = np.array([zone.end for zone in manager.zones()[:-1]], dtype=np.int64)
    delays = []
    seen = np.zeros(ends.shape[0], bool)
    for at in given.changes.tolist():
        within = np.flatnonzero((ends > at) & (ends <= at + _PATIENCE))
        if within.size:
            seen[within[0]] = True
            delays.append(float(ends[within[0]] - at))
    return {
        "found": len(delays) / given.changes.shape[0] if given.changes.size else None,
        "delay": float(np.mean(delays)) if delays else None,
        "false_alarms": float((~seen).sum()) * 100_000 / n,
    }


CHANGE = register(
    Kind(
        name="change",
        about="changes of a stream, seen by the detector that ends time zones",
        options=ChangeOptions,
        metrics={
            "found": Metric("Changes seen", "changes seen", f"of the changes, within {_PATIENCE:,} tuples", "share", 1),
            "delay": Metric("How late a change is seen", "delay", "tuples after the change", "number", -1),
            "false_alarms": Metric("False alarms", "false alarms", "in 100,000 tuples", "number", -1),
        },
        prepares=("share", "what", "stretch", "changes"),
        prepare=_prepare,
        measure=_measure,
        operator=lambda options: f"{options.confidence} at {options.threshold:g}",
    )
)
