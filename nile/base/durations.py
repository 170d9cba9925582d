"""Durations as people write them, as whole nanoseconds inside."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from fractions import Fraction
from typing import Any

import numpy as np

from nile.summaries.errors import ConfigError

NS_PER_SECOND = 1_000_000_000

MAX_DURATION = 2**61 - 2
"""The longest duration, in nanoseconds (73 years): an event time plus a window never leaves int64."""

_UNITS: dict[str, int] = {
    "w": 604_800 * NS_PER_SECOND,
    "d": 86_400 * NS_PER_SECOND,
    "h": 3_600 * NS_PER_SECOND,
    "min": 60 * NS_PER_SECOND,
    "s": NS_PER_SECOND,
    "ms": 1_000_000,
    "us": 1_000,
    "ns": 1,
}
_SPELLINGS: dict[str, str] = {
    spelling: unit
    for unit, spellings in {
        "w": "w week weeks",
        "d": "d day days",
        "h": "h hr hrs hour hours",
        "min": "min m mins minute minutes",
        "s": "s sec secs second seconds",
        "ms": "ms msec millisecond milliseconds",
        "us": "us usec µs μs microsecond microseconds",
        "ns": "ns nsec nanosecond nanoseconds",
    }.items()
    for spelling in spellings.split()
}
_NUMBER = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_PART = re.compile(rf"({_NUMBER})\s*([a-zµμ]+)\s*,?\s*(?:and\s+)?")
_PLAIN = re.compile(_NUMBER)
_WRITTEN = "up to 73 years: a number of seconds, or text like '6 hours', '100 ms', '1 h 30 min'"


def parse_duration(value: str | int | float | timedelta, *, where: str, least: int = 1) -> int:
    """The duration `value` in nanoseconds (int, least..MAX_DURATION).

    Numbers, and text that is only a number, are seconds; text carries units from nanoseconds to weeks
    ("6 hours", "100 ms", "1h30min"). Fractions are exact and rounded to whole nanoseconds at the end.
    Months and years have no fixed length and are refused. `where` names the setting in messages; `least` is 0 or 1.
    Raises ConfigError.
    """
    needed = f"{where}: needed a duration {'above 0' if least else 'of 0 or more'} and {_WRITTEN}"
    given: Any = value
    if isinstance(given, np.integer | np.floating):
        given = given.item()
    if isinstance(given, timedelta):
        exact = Fraction((given.days * 86_400 + given.seconds) * 1_000_000 + given.microseconds) * 1_000
    elif isinstance(given, str):
        exact = _from_text(given, needed)
    elif isinstance(given, bool) or not isinstance(given, (int, float)):
        raise ConfigError(f"{needed}; got {given!r} ({type(given).__name__})")
    elif isinstance(given, float) and not math.isfinite(given):
        raise ConfigError(f"{needed}; got {given!r}")
    else:
        exact = Fraction(given) * NS_PER_SECOND
    nanoseconds = round(exact)
    if not least <= nanoseconds <= MAX_DURATION or (exact and not nanoseconds):
        raise ConfigError(f"{needed}; got {value!r}")
    return nanoseconds


def is_unit(word: str) -> bool:
    """Whether a word is a unit that durations are written in."""
    return word.lower() in _SPELLINGS


def format_duration(ns: int) -> str:
    """`ns` nanoseconds as text ("1 h 30 min", "100 ms") that `parse_duration` reads back exactly."""
    if ns == 0:
        return "0 s"
    sign, rest = ("-", -ns) if ns < 0 else ("", ns)
    parts = []
    for unit, size in _UNITS.items():
        if unit == "w":  # "7 d" reads better than "1 w", and weeks hide the day count
            continue
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}")
    return sign + " ".join(parts)


def _from_text(text: str, needed: str) -> Fraction:
    cleaned = text.strip().lower()
    if len(cleaned) > 100:
        raise ConfigError(f"{needed}; got {len(text)} characters of text")
    if _PLAIN.fullmatch(cleaned):
        return Fraction(cleaned.rstrip(".")) * NS_PER_SECOND
    total, position = Fraction(0), 0
    while position < len(cleaned):
        part = _PART.match(cleaned, position)
        unit = _SPELLINGS.get(part[2]) if part else None
        if part is None or unit is None:
            raise ConfigError(f"{needed}; got {text!r}{_hint(cleaned)}")
        total += Fraction(part[1].rstrip(".")) * _UNITS[unit]
        position = part.end()
    if position == 0:
        raise ConfigError(f"{needed}; got {text!r}")
    return total


def _hint(text: str) -> str:
    if re.search(r"month|year|quarter", text):
        return "; months and years have no fixed length, write days"
    return ""
