"""What a summary of a stream is asked to be (CREATE SUMMARY), checked before anything is built."""

from __future__ import annotations

import math
from dataclasses import dataclass

from nile.summaries.errors import ConfigError, MemoryRefused

__all__ = ["CONFIDENCES", "LONGEST", "SLICE", "STRUCTURES", "SummarySpec"]

SLICE = 256
"""Tuples of a stream, by ordinal, after which a zone may end."""

STRUCTURES = ("T1", "T2", "T3", "T4")
CONFIDENCES = ("two-window", "variance")
LONGEST = 1 << 62
"""The longest granularity, ns: 146 years."""
_COUNTER_LIMIT = 1 << 28  # 2 GiB of counters per stream


@dataclass(frozen=True, slots=True)
class SummarySpec:
    """CREATE SUMMARY ... WITH GRANULARITY granularity AND COLLAPSE (rate, depth).

    granularity: T1, the time the finest granularity covers, in ns.  G2..Gm (m = depth) have `rate` zones
    each and span rate times the granularity before.  buckets x columns count-sketch columns a row, `rows`
    rows, per zone.  structure: T1 no summary, T2 zones in time only, T3 value x time with fixed zones, T4
    value x time with zones that end when the stream's behaviour changes.  max_length: the longest a zone of
    G1 may be, ns (default granularity / 4).  threshold: a zone ends when its confidence falls below it.
    forgetting: drop what leaves Gm (True) or keep it in Gm's oldest zone (False).
    Raises ConfigError for a number outside its range, MemoryRefused when the counters could not fit.
    Source: promising tuples, sections 3.1 to 3.5; zones end only at slice ends so that a distributed build
    gives the same bytes.
    """

    granularity: int
    rate: int = 4
    depth: int = 2
    structure: str = "T4"
    buckets: int = 16
    rows: int = 3
    columns: int = 32
    confidence: str = "two-window"
    threshold: float = 0.02
    max_length: int | None = None
    forgetting: bool = False
    max_zones: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        _whole("granularity", self.granularity, 1, LONGEST, "ns, write a duration such as '15 min'")
        _whole("rate", self.rate, 2, 4096, "each granularity is so many times as long as the one before")
        _whole("depth", self.depth, 1, 32, "so many granularities")
        _power("buckets", self.buckets, 1, 4096, "16 is the default")
        _whole("rows", self.rows, 1, 15, "3 is the default")
        _power("columns", self.columns, 1, 1 << 20, "32 is the default")
        _power("max_zones", self.max_zones, 2, 4096, "16 is the default")
        _whole("seed", self.seed, -(1 << 63), (1 << 64) - 1, "0 is the default")
        if self.max_length is not None:
            _whole("max_length", self.max_length, 1, LONGEST, "ns, leave it out for a quarter of the granularity")
        for name, value, known in (
            ("structure", self.structure, STRUCTURES),
            ("confidence", self.confidence, CONFIDENCES),
        ):
            if value not in known:
                raise ConfigError(f"summary {name}: needed one of {', '.join(known)}; got {value!r}; name one of these")
        if not isinstance(self.forgetting, bool):
            raise ConfigError(
                f"summary forgetting: needed true or false; got {self.forgetting!r}; "
                "false keeps what leaves the last granularity"
            )
        threshold = self.threshold
        if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0.0 <= threshold < 1.0:
            raise ConfigError(
                f"summary threshold: needed a confidence in [0, 1); got {threshold!r}; "
                "0 never ends a zone early, 0.02 is the default"
            )
        if self.counters > _COUNTER_LIMIT:
            fit = self.columns
            while fit and self.counters // self.columns * fit > _COUNTER_LIMIT:
                fit //= 2
            mend = f"columns={fit} would fit" if fit else "lower depth, rate or max_zones"
            raise MemoryRefused(
                f"summary: needed at most 2 GiB of counters; got {8 * self.counters / 2**30:.1f} GiB: "
                f"{self.zone_slots} zones and index nodes (max_zones {self.max_zones}, rate {self.rate}, "
                f"depth {self.depth}) of {self.rows} rows x {self.buckets} buckets x {self.columns} columns x 2 signs; "
                f"{mend}"
            )

    @property
    def value_buckets(self) -> int:
        """Buckets of the value dimension in force: T2 has one."""
        return 1 if self.structure == "T2" else self.buckets

    @property
    def width(self) -> int:
        """Count-sketch columns of one row over all buckets (T2 keeps the width in its one bucket)."""
        return self.buckets * self.columns

    @property
    def bucket_columns(self) -> int:
        """Count-sketch columns of one row of one cell."""
        return self.width // self.value_buckets

    @property
    def zone_length(self) -> int:
        """MAXLENGTH of a zone of G1, ns."""
        return self.max_length if self.max_length is not None else max(1, self.granularity // 4)

    @property
    def leaf_capacity(self) -> tuple[int, ...]:
        """Leaves of each granularity's pyramid, a power of two."""
        later = 1 << max(1, math.ceil(math.log2(self.rate)))
        return (self.max_zones, *([later] * (self.depth - 1)))

    @property
    def counters_shape(self) -> tuple[int, int, int]:
        """Zones, rows of a sketch and cells per row (both signs); T1 counts tuples alone."""
        return (self.zone_slots, 1, 2) if self.structure == "T1" else (self.zone_slots, self.rows, 2 * self.width)

    @property
    def zone_slots(self) -> int:
        """Sketches held: every node of every pyramid."""
        return sum(2 * leaves - 1 for leaves in self.leaf_capacity)

    @property
    def counters(self) -> int:
        """Counters held: fixed, however long the stream."""
        return self.zone_slots * self.rows * 2 * self.width if self.structure != "T1" else 0

    def span(self, granularity: int) -> int:
        """Time that granularity 1..depth covers, ns: granularity * rate ** (granularity - 1)."""
        return int(self.granularity * self.rate ** (granularity - 1))


def _whole(name: str, value: object, low: int, high: int, hint: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"summary {name}: needed a whole number from {low} to {high}; got {value!r}; {hint}")


def _power(name: str, value: int, low: int, high: int, hint: str) -> None:
    _whole(name, value, low, high, f"a power of two, {hint}")
    if value & (value - 1):
        raise ConfigError(
            f"summary {name}: needed a power of two from {low} to {high}; got {value}; "
            f"try {1 << value.bit_length() - 1} or {1 << value.bit_length()}"
        )
