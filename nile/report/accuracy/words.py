"""Values of the user's data on one short line."""

from __future__ import annotations

from typing import Any

from nile.shell.show import cell_text

__all__ = ["key_text"]

_LONGEST = 60


def key_text(value: Any) -> str:
    """A key (a Python value or an Arrow scalar) as the shell shows it, no control characters, 60 at most."""
    text = cell_text(_plain(value))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "\N{HORIZONTAL ELLIPSIS}"


def _plain(value: Any) -> Any:
    if not hasattr(value, "as_py"):
        return value
    try:
        return value.as_py()
    except ValueError:  # nanoseconds, which Python's times have not
        return str(value)
