"""Decoding messages, lines and entries: values of a stream's fields, and maybe a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit, urlunsplit

from nile.base.show import has_bytes, with_bytes
from nile.sensors.sensor import NEW_VALUE, NO_VALUE, Sensor
from nile.summaries.errors import SourceError
from nile.summaries.heavy import pa

__all__ = ["Messages", "Unfit", "options_of", "shown_address"]


class Unfit:
    """A message that is no value of any field."""

    def __init__(self, message: bytes) -> None:
        self.message = message

    def __repr__(self) -> str:
        return self.message.decode("utf-8", "replace")


class Messages(Sensor):
    """A source of bytes that are messages, each a value.

    Of a stream with one field of TEXT or BLOB a message is the value; of others it is JSON: an object with the fields
    by their names (more may be in it), an array of their values in order, or, of a single field, its value; bytes are
    base64 there.  What is not is rejected.
    time_name: of an object, where its time stands (seconds since 1970 or ISO text); None: without.
    acknowledges: whether the server is told, by the next read or at the end, that it may forget what was read before;
    given: whether that has arrived where it was to go; where not, it is not acknowledged and comes again.
    several: whether messages that are read again may come in another order; ahead: places that such a source had
    reached, read by read, in a process that was killed: it stops at each of them again, and takes those it has passed
    from the list.
    """

    batch = True
    time_name: str | None = None
    acknowledges = False
    given = True
    several = False
    ahead: list[Any] = []  # noqa: RUF012  # nobody appends to it

    def found(self, messages: Iterable[bytes]) -> Any:
        """What `read` returns for these messages."""
        values, times = [], []
        for message in messages:
            value, at = self.value(message)
            values.append(value)
            times.append(at)
        if not values:
            return NO_VALUE
        return (NEW_VALUE, values) if self.time_name is None else (NEW_VALUE, values, times)

    def value(self, message: bytes) -> tuple[Any, Any]:
        """(value, time or None) of a message."""
        if self._is_plain():
            return (message if pa.types.is_binary(self.fields.field(0).type) else _text(message)), None
        try:
            value = json.loads(message)
        except ValueError:
            return Unfit(message), None
        if isinstance(value, Mapping):
            return self.picked(value)
        if self._coded and isinstance(value, list) and len(value) == len(self.fields):
            value = [_cell(each, name in self._coded) for each, name in zip(value, self.fields.names, strict=True)]
        return value, None

    def picked(self, value: Mapping[str, Any]) -> tuple[Any, Any]:
        """(the fields that an object has, its time)."""
        at = None if self.time_name is None else value.get(self.time_name, "")
        cells = {name: value[name] for name in self.fields.names if name in value}
        for name in self._coded:
            if name in cells:
                cells[name] = _cell(cells[name], True)
        return cells, at

    @cached_property
    def _coded(self) -> frozenset[str]:
        """The fields that JSON has in base64."""
        return frozenset(field.name for field in self.fields if has_bytes(field.type))

    def _is_plain(self) -> bool:
        kind = self.fields.field(0).type
        return len(self.fields) == 1 and (pa.types.is_string(kind) or pa.types.is_binary(kind))


def _cell(cell: Any, coded: bool) -> Any:
    try:
        return with_bytes(cell) if coded else cell
    except ValueError:
        return Unfit(str(cell).encode())


def _text(message: bytes) -> Any:
    try:
        return message.decode()
    except UnicodeDecodeError:
        return message  # does not fit


def options_of(address: Any, known: Iterable[str], *, where: str) -> tuple[SplitResult, str, dict[str, str]]:
    """An address (its parts, and as text without the options that are ours) and these options, from behind its ?.

    Others stay in the address.  Raises SourceError for what is no address.
    """
    if not isinstance(address, str) or not address:
        raise SourceError(f"{where}: needed an address in the row's stream column; got {address!r}; give the row one")
    parts = urlsplit(address)
    given = parse_qsl(parts.query, keep_blank_values=True)
    own = {name: value for name, value in given if name in known}
    rest = "&".join(part for part in parts.query.split("&") if part.partition("=")[0] not in known)
    return parts, urlunsplit(parts._replace(query=rest)), own


def shown_address(address: str) -> str:
    """An address without its password."""
    parts = urlsplit(address)
    if parts.password is None:
        return address
    user, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.split(':')[0]}:***@{host}"))
