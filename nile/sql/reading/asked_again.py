"""Queries that were read before: a text, its parameters and the names that there are tell all that one becomes."""

from __future__ import annotations

import datetime
import decimal
import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from nile.sql.catalog import Catalog
from nile.sql.parameters import Parameters
from nile.sql.statements import Select

__all__ = ["AskedAgain"]

_MOST = 64
_LONGEST = 4_096
"""Statements kept, and signs of one with its parameters, at most: some megabytes in all."""
_SCALARS = frozenset(
    (bool, int, float, str, bytes, type(None), datetime.datetime, datetime.date, datetime.time, datetime.timedelta,
     decimal.Decimal)
)  # fmt: skip
_ZONES = frozenset((type(None), datetime.timezone))

_Names = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]


class AskedAgain:
    """Queries as they were read last, so that one that is asked again is not parsed, bound and rewritten again.

    Nothing has to tell it what changes: a query counts only among the same streams, relations, summaries and views.
    Threads may share it.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, tuple[_Names, Select]] = OrderedDict()
        self._moment = threading.Lock()

    def find(self, text: str, params: Parameters, catalog: Catalog) -> Select | None:
        """What the text was read as; None where it was not, or where names have changed since.  O(names)."""
        key = _key(text, params)
        with self._moment:
            held = None if key is None else self._known.get(key)
            if held is None:
                return None
            self._known.move_to_end(key)
        names, read = held
        return read if names == _names(catalog) else None

    def keep(self, text: str, params: Parameters, catalog: Catalog, read: Select) -> None:
        """Remember what a text was read as."""
        key = _key(text, params)
        if key is None:
            return
        names = _names(catalog)
        with self._moment:
            self._known[key] = (names, read)
            self._known.move_to_end(key)
            while len(self._known) > _MOST:
                self._known.popitem(last=False)


def _names(catalog: Catalog) -> _Names:
    return dict(catalog.entries), dict(catalog.summaries), dict(catalog.views)


def _key(text: str, params: Parameters) -> Hashable | None:
    """Text and parameters as a key; None for what is too long, or holds what may change.

    By type and spelling: 1, 1.0 and True are equal and mean different things, as 0.0 and -0.0 do.
    """
    given: Sequence[tuple[Any, Any]]
    if params is None:
        given = ()
    elif type(params) in (list, tuple):
        given = [(None, value) for value in params]
    elif type(params) is dict:
        given = list(params.items())
    else:
        return None
    if type(text) is not str:
        return None
    told = []
    length = len(text)
    for name, value in given:
        length += len(value) if isinstance(value, str | bytes) else 0
        zone = getattr(value, "tzinfo", None)
        if type(value) not in _SCALARS or type(zone) not in _ZONES or not isinstance(name, str | None):
            return None
        if length > _LONGEST:
            return None
        told.append((name, type(value), repr(value)))
        length += len(told[-1][2])
    return (text, isinstance(params, Mapping), tuple(told)) if length <= _LONGEST else None
