"""How a stream of the lake lies on the disk: its columns and constants, and the names of directories and files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from nile.pyramid.lake.part import MAX_BITS, Part
from nile.summaries.errors import ConfigError, SourceMissing
from nile.summaries.heavy import pa

__all__ = ["DAY", "MANIFESTS", "Layout", "directory_of", "part_path", "range_name", "streams_of"]

DAY = 86_400 * 10**9
MANIFESTS = ("_manifest-0", "_manifest-1")


@dataclass(frozen=True, slots=True)
class Layout:
    """How a stream lies in the lake; never changes.

    stream: its name.  time: the column its event time came from ('' if none).  key: the clustering column.
    schema: the user's columns, none nested.  range_ns: length of a time range.  bits: 2 ** bits buckets.
    group_rows: rows of a row group.  rules: what a writer wants to remember of how rows got in (JSON).
    """

    stream: str
    time: str
    key: str
    schema: pa.Schema
    range_ns: int = DAY
    bits: int = 12
    group_rows: int = 65_536
    rules: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        where = f"lake: stream '{self.stream}'"
        if not self.stream:
            raise ConfigError("lake: a stream needs a name; got ''; give one")
        if self.key not in self.schema.names:
            raise ConfigError(
                f"{where}: needed a column to cluster by; got '{self.key}', which it does not have; "
                f"name one of {', '.join(self.schema.names)}"
            )
        if not 1 <= self.bits <= MAX_BITS:
            raise ConfigError(f"{where}: needed 1 to {MAX_BITS} bits of buckets; got {self.bits}; 12 suits most")
        if self.range_ns < 1 or self.group_rows < 1:
            raise ConfigError(
                f"{where}: needed a time range and row groups of at least 1; got {self.range_ns} ns "
                f"and {self.group_rows} rows; a day and 65,536 suit most"
            )


def directory_of(root: str | Path, stream: str) -> Path:
    """Where a stream of a lake is; any name makes a harmless directory, two names two directories."""
    name = quote(stream, safe=" ,")
    # A first dot or underscore hides a directory from Spark, and "..", from everybody.
    first = f"%{ord(name[0]):02X}" if name[0] in "._" else name[0]
    return Path(root) / (first + name[1:])


def streams_of(root: str | Path) -> list[str]:
    """The streams of a lake, by name.  Raises SourceMissing."""
    path = Path(root)
    if not path.is_dir():
        raise SourceMissing(f"{path}: needed a lake; there is no such directory; `nile ingest` makes one")
    found = (entry for entry in path.iterdir() if any((entry / name).exists() for name in MANIFESTS))
    return sorted(unquote(entry.name) for entry in found)


def range_name(ts: int, range_ns: int = DAY) -> str:
    """The directory of the time range that holds `ts` (ns): `day=2011-12-09` or `from=2011-12-09T08-00-00`."""
    begin = np.datetime64(ts - ts % range_ns, "ns")
    if range_ns == DAY:
        return f"day={begin.astype('datetime64[D]')}"
    whole = range_ns % 10**9 == 0
    return "from=" + str(begin.astype("datetime64[s]") if whole else begin).replace(":", "-")


def part_path(part: Part, number: int, range_ns: int = DAY) -> str:
    """The name of a part by the rules above; number: of the file in its stream, never given twice."""
    return f"{range_name(part.since, range_ns)}/part-{part.low:04x}-{part.high:04x}-{number}.parquet"
