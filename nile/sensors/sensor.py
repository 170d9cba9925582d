"""The interface of a source class: init, read and close, and what a read returns."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Mapping
from enum import Enum
from typing import Any
from weakref import WeakValueDictionary

from nile.summaries.errors import ConfigError
from nile.summaries.heavy import pa

__all__ = ["END", "NEW_VALUE", "NO_VALUE", "Sensor", "Status", "is_async", "sensor_class"]

_DEFINED: WeakValueDictionary[str, type[Sensor]] = WeakValueDictionary()
"""Subclasses of Sensor by their names, the last one defined of each."""


class Status(Enum):
    """What a read found: a value, none at the moment, or the end of the source."""

    NEW_VALUE = "new value"
    NO_VALUE = "no value"
    END = "end"

    def __repr__(self) -> str:
        return self.name


NEW_VALUE, NO_VALUE, END = Status


class Sensor:
    """One source of a stream; subclass it.  Its attributes are its state, from init to close.

    `read` returns NO_VALUE, END, (NEW_VALUE, value) or (NEW_VALUE, value, time).  value: a dict keyed by the stream's
    field names, a tuple in field order, or, for a single field, the bare value.  time: seconds since 1970, a
    datetime or ISO text, not before this source's last one; without one, the time of arrival.
    `init`, `read` and `close` may be coroutines (`async def read`): then all of them are awaited on one event loop.
    With a method `fileno`, which gives a descriptor, `read` is called when that is readable, not polled.

    batch: a value is a list of values, a time a list of times.  every: seconds from one read to the next; 0: as soon
    as its turn comes again, and after NO_VALUE 10 ms later.  timeout: seconds that a call may take, after which the
    call is abandoned and the source restarted; None: no limit, for sources that block in `read`.  restarts: how
    often in a row it is restarted after an error; None: for ever.  10 s without an error reset the count.
    It is restarted .1 s later, then .2 s later if that gave no value, and so on up to 30 s.
    A nile.SourceError means that retrying is useless: the source has failed.  place: how far it has read, if it sets
    it; the next instance of a source has it before its init.  fields: those of the stream, as declared.
    Every instance is used once: one `init`, and after it, whatever happened, one `close`.
    Source: STEAM, section 3.3 (InitStream, ReadStream, CloseStream); batches and coroutines are ours.
    """

    batch: bool = False
    every: float = 0.0
    timeout: float | None = 10.0
    restarts: int | None = 5
    place: Any = None
    fields: pa.Schema

    def __init_subclass__(cls) -> None:
        _DEFINED[cls.__name__] = cls

    def init(self, address: Any, row: Mapping[str, Any]) -> Any:
        """Start.  address: the row's value in the stream column; row: its static columns, by name."""

    def read(self) -> Any:
        """The next value, if there is one now."""
        raise NotImplementedError

    def close(self) -> Any:
        """End; also after an `init` that failed."""


def is_async(kind: type[Sensor]) -> bool:
    """Whether its reads are awaited."""
    return inspect.iscoroutinefunction(kind.read)


def sensor_class(name: str, *, where: str) -> type[Sensor]:
    """The subclass of Sensor of that name, or the class that 'module:Class' stands for, whose module is imported.

    Raises ConfigError for what cannot be found or is no Sensor.
    """
    found = _DEFINED.get(name)
    module, colon, attribute = name.partition(":")
    if found is None and not colon:
        known = ", ".join(sorted(_DEFINED)) or "none is defined yet"
        raise ConfigError(
            f"{where}: needed USING a subclass of nile.Sensor ({known}), or "
            f"'module:Class'; got {name!r}; define the class first"
        )
    if found is None and not all(part.isidentifier() for part in [*module.split("."), *attribute.split(".")]):
        raise ConfigError(f"{where}: needed USING 'module:Class'; got {name!r}; name a class that Python can import")
    try:
        found = found or pkgutil.resolve_name(name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"{where}: needed USING a class that Python can import; got '{name}' ({error}); is its folder on the path?"
        ) from None
    if not (isinstance(found, type) and issubclass(found, Sensor)):
        raise ConfigError(
            f"{where}: needed USING a subclass of nile.Sensor; got '{name}', {found!r:.60}; write class A(nile.Sensor)"
        )
    if found.read is Sensor.read:
        raise ConfigError(f"{where}: needed a class with a method read; got '{name}' without one; write read(self)")
    return found
