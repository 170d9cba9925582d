"""Names as users give them: one, or several."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nile.summaries.errors import ConfigError

__all__ = ["check_name", "names_given"]


def check_name(name: Any, *, where: str) -> None:
    """Raises ConfigError for what is no text."""
    if not isinstance(name, str):
        text = repr(name).split("\n", 1)[0]
        told = text if len(text) <= 60 else f"a {type(name).__name__}"
        raise ConfigError(f"{where}: needed a name as text; got {told}; write it in quotes")


def names_given(given: Any, *, where: str) -> list[str]:
    """One name or several as a list; none for None.  Raises ConfigError for anything that is no text."""
    if given is None:
        return []
    found = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    for name in found:
        check_name(name, where=where)
    return found
