"""Protocol buffers, as much of them as Flight SQL's messages need: fields to bytes and back.

A message is a row of fields; each begins with a whole number (its number, and how long its value is) in base 128.
Source: Protocol Buffers, "Encoding"; Apache Arrow, format/FlightSql.proto and format/Flight.proto (numbers of fields).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nile.summaries.errors import ConfigError

__all__ = ["Fields", "fields_of", "flag", "message", "numbers", "packed", "text", "texts", "unpacked"]

Fields = Mapping[int, list[int | bytes]]
"""The values of each field by its number, in order; numbers as they stand, everything else as bytes."""

_PREFIX = "type.googleapis.com/arrow.flight.protocol.sql."
_LONGEST = 10  # bytes of a whole number of 64 bits
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def message(*fields: tuple[int, int | str | bytes]) -> bytes:
    """(number, value) of each field; whole numbers from 0 on, text, or the bytes of a message."""
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts += [_varint(number << 3 | _VARINT), _varint(value)]
        else:
            data = value.encode() if isinstance(value, str) else value
            parts += [_varint(number << 3 | _BYTES), _varint(len(data)), data]
    return b"".join(parts)


def packed(name: str, *fields: tuple[int, int | str | bytes]) -> bytes:
    """A message of Flight SQL in google.protobuf.Any, which says what it is."""
    return message((1, _PREFIX + name), (2, message(*fields)))


def unpacked(data: bytes) -> tuple[str, Fields]:
    """The name and fields of a message in google.protobuf.Any.  Raises ConfigError."""
    outer = fields_of(data)
    name = text(outer, 1) or ""
    if not name.startswith(_PREFIX):
        raise ConfigError(f"Flight: needed a message of Flight SQL; got {name[:80]!r}; use a driver for Flight SQL")
    return name.removeprefix(_PREFIX), fields_of(_bytes(outer, 2))


def fields_of(data: bytes) -> Fields:
    """Of a message.  Raises ConfigError for bytes that are none."""
    found: dict[int, list[int | bytes]] = {}
    at = 0
    while at < len(data):
        tag, at = _read(data, at)
        number, kind = tag >> 3, tag & 7
        value: int | bytes
        if kind == _VARINT:
            value, at = _read(data, at)
        else:
            length = {_FIXED64: 8, _FIXED32: 4}.get(kind, -1)
            if kind == _BYTES:
                length, at = _read(data, at)
            if not number or length < 0 or at + length > len(data):
                raise _broken()
            value, at = data[at : at + length], at + length
        found.setdefault(number, []).append(value)
    return found


def text(fields: Fields, number: int) -> str | None:
    """Text; None where it is not said.  Raises ConfigError."""
    if number not in fields:
        return None
    try:
        return _bytes(fields, number).decode()
    except UnicodeDecodeError:
        raise _broken() from None


def texts(fields: Fields, number: int) -> tuple[str, ...]:
    """Text that may be said several times.  Raises ConfigError."""
    return tuple(text({number: [each]}, number) or "" for each in fields.get(number, ()))


def flag(fields: Fields, number: int) -> bool:
    """Whether it is said, and is true."""
    return fields.get(number, [0])[-1] == 1


def numbers(fields: Fields, number: int) -> tuple[int, ...]:
    """Whole numbers, one by one or packed.  Raises ConfigError."""
    return tuple(_each(fields.get(number, ())))


def _each(values: list[int | bytes] | tuple[()]) -> Iterator[int]:
    for value in values:
        if isinstance(value, int):
            yield value
            continue
        at = 0
        while at < len(value):
            one, at = _read(value, at)
            yield one


def _bytes(fields: Fields, number: int) -> bytes:
    value = fields.get(number, [b""])[-1]
    if isinstance(value, int):
        raise _broken()
    return value


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value >= 128:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _read(data: bytes, at: int) -> tuple[int, int]:
    """A whole number, and where what comes after it begins."""
    value = 0
    for place, byte in enumerate(data[at : at + _LONGEST]):
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value, at + place + 1
    raise _broken()


def _broken() -> ConfigError:
    return ConfigError("Flight: needed a message of protocol buffers; got other bytes; use a driver for Flight SQL")
