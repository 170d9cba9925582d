"""Values of the user's data on one short line."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.base.show import cell_text
from nile.report.histograms import BINS
from nile.summaries.heavy import pa

__all__ = ["bin_texts", "key_text"]

Array = np.ndarray[Any, Any]

_LONGEST = 60


def key_text(value: Any) -> str:
    """A key (a Python value or an Arrow scalar) as the shell shows it, no control characters, 60 at most."""
    text = cell_text(_plain(value))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "\N{HORIZONTAL ELLIPSIS}"


def bin_texts(keys: Any, bins: Array) -> tuple[str, ...]:
    """The first and last key of each of BINS bins; one without a key has no text.

    keys: sorted, an Arrow array [k] or a list; bins: of each, not decreasing, int64 [k].
    """
    first, end = (np.searchsorted(bins, np.arange(BINS), side=side) for side in ("left", "right"))
    texts = []
    for a, b in zip(first.tolist(), end.tolist(), strict=True):
        ends = [key_text(keys[at]) for at in ((a, b - 1) if b > a else ())]
        texts.append(" to ".join(dict.fromkeys(ends)))
    return tuple(texts)


def _plain(value: Any) -> Any:
    if not isinstance(value, pa.Scalar):
        return value
    try:
        return value.as_py()
    except ValueError:  # nanoseconds, which Python's times have not
        return str(value)
