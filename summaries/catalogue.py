"""Every summary by name: the law tests run over this list, and `USING sketch = name` chooses from it."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from nile.summaries.countsketch import CountMin, CountSketch
from nile.summaries.envelope import unpack
from nile.summaries.errors import ConfigError, EnvelopeError
from nile.summaries.exact import ExactCounter
from nile.summaries.ordered import Histogram, Wavelet
from nile.summaries.ready import FrequentItems, HyperLogLog
from nile.summaries.sampled import Kll, Reservoir
from nile.summaries.summary import Summary

__all__ = ["CATALOGUE", "make_summary", "read_summary"]

CATALOGUE: Mapping[str, type[Summary]] = MappingProxyType(
    {
        summary.kind: summary
        for summary in (
            CountSketch,
            CountMin,
            ExactCounter,
            Histogram,
            Wavelet,
            Reservoir,
            Kll,
            FrequentItems,
            HyperLogLog,
        )
    }
)
"""name -> factory; each factory's keyword arguments are the options of that summary."""


def make_summary(name: str, **options: Any) -> Summary:
    """An empty summary of the kind `name`.  Raises ConfigError for an unknown name, option or value."""
    factory = CATALOGUE.get(name)
    if factory is None:
        raise ConfigError(
            f"sketch: needed one of {', '.join(sorted(CATALOGUE))}; got {name!r}; {_nearest(name, CATALOGUE)}"
        )
    known = inspect.signature(factory).parameters
    for option in options:
        if option not in known:
            raise ConfigError(
                f"sketch {name!r}: needed only options of {', '.join(sorted(known)) or 'no name'}; "
                f"got {option!r}; {_nearest(option, known)}"
            )
    return factory(**options)


def read_summary(data: bytes | bytearray | memoryview, *, where: str = "summary") -> Summary:
    """The summary of any kind that `to_bytes` wrote.  Raises EnvelopeError, naming `where`."""
    envelope = unpack(data, where=where)
    factory = CATALOGUE.get(envelope.kind)
    if factory is None:
        raise EnvelopeError(
            f"{where}: needed a summary of kind {', '.join(sorted(CATALOGUE))}; got {envelope.kind!r}; "
            "name a file that holds a summary"
        )
    return factory.from_envelope(envelope)


def _nearest(name: str, known: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else "name one of these, or leave it out"
