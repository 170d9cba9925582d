"""Validation of a window join's arguments: names, and arrays of integers."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np

from nile.summaries.errors import ConfigError, KeyTypeError

__all__ = ["known", "whole_numbers"]

Array = np.ndarray[Any, Any]


def known(what: str, name: object, names: Sequence[str]) -> None:
    if name not in names:
        near = get_close_matches(str(name), [each for each in names if each], n=1)
        hint = f"did you mean {near[0]!r}?" if near else "name one of these"
        raise ConfigError(f"window join, {what}: needed one of {', '.join(filter(None, names))}; got {name!r}; {hint}")


def whole_numbers(values: Any, role: str, what: str) -> Array:
    """Values as contiguous int64 [m]."""
    array = np.asarray(values)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.shape[0]) or array.dtype == np.uint64:
        message = (
            f"window join, {what}: needed {role} as int64 in one dimension; got {array.dtype} {list(array.shape)}; "
            + ("encode keys with nile.exact.join.chain.encode_all" if role == "codes" else "give nanoseconds as int64")
        )
        raise KeyTypeError(message) if role == "codes" else ConfigError(message)
    return np.ascontiguousarray(array, np.int64)
