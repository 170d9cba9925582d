"""WITH PREFERENCE: the order in which a query wants its answer."""

from __future__ import annotations

from nile.summaries.errors import ConfigError

__all__ = ["PREFERENCES", "preference_number"]

PREFERENCES = ("desc", "weighted", "asc")
"""desc: the most matches first; weighted: a faithful sample; asc: outliers first (section 4.1.1)."""


def preference_number(name: str, place: str = "preference") -> int:
    """The number kernels know a preference by.  Raises ConfigError, which names `place`, for an unknown name."""
    try:
        return PREFERENCES.index(name)
    except ValueError:
        raise ConfigError(
            f"{place}: needed one of {', '.join(PREFERENCES)}; got {name!r}; "
            "name one of these (desc asks for volume, weighted for a sample, asc for outliers)"
        ) from None
