"""Amounts of memory and disk as people write them, as whole bytes inside."""

from __future__ import annotations

import math
import re
from fractions import Fraction

from nile.summaries.errors import ConfigError

__all__ = ["format_size", "parse_size"]

_DECIMAL = ("b", "kb", "mb", "gb", "tb")
_UNITS = {
    **{unit: 1000**power for power, unit in enumerate(_DECIMAL)},
    **{unit: 1024**power for power, unit in enumerate(("b", "kib", "mib", "gib", "tib"))},
    **{unit: 1000**power for power, unit in enumerate(("", "k", "m", "g", "t"))},
}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z]*)")
_NEEDED = "a number of bytes, or text like '256MB', '1.5 GB', '512 MiB'"
_MOST = 1 << 60


def parse_size(value: int | float | str, *, where: str, least: int = 1) -> int:
    """The amount `value` in bytes (int, least..2**60): MB are 1,000,000 bytes, MiB 1,048,576.

    `where` names the setting in messages.  Raises ConfigError.
    """
    size: Fraction | None = None
    if isinstance(value, str):
        if len(value) <= 40 and (found := _SIZE.fullmatch(value.strip().lower())) and found[2] in _UNITS:
            size = Fraction(found[1].rstrip(".")) * _UNITS[found[2]]
    elif (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, float) and math.isfinite(value)
    ):
        size = Fraction(value)
    if size is None:
        raise ConfigError(f"{where}: needed {_NEEDED}; got {str(value)[:40]!r}")
    whole = round(size)
    if not least <= whole <= _MOST:
        raise ConfigError(
            f"{where}: needed {format_size(least)} to {format_size(_MOST)}; got {value!r}; choose another"
        )
    return whole


def format_size(size: int) -> str:
    """Bytes as text with three digits: '1.25 MB'."""
    amount = float(size)
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if amount < 999.5 or unit == "TB":
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.3g} {unit}"
        amount /= 1000
    raise AssertionError("not reached")
