"""The schema of rows as JSON values and back, without metadata: what a byte form says of its columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from nile.summaries.errors import EnvelopeError
from nile.summaries.heavy import pa

__all__ = ["no_form", "schema_from_json", "schema_to_json"]

# Types that their name says all of; the name is Arrow's text of the type.
_PLAIN = {
    "null": "null",
    "bool": "bool_",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "halffloat": "float16",
    "float": "float32",
    "double": "float64",
    "string": "string",
    "large_string": "large_string",
    "string_view": "string_view",
    "binary": "binary",
    "large_binary": "large_binary",
    "binary_view": "binary_view",
    "date32[day]": "date32",
    "date64[ms]": "date64",
    "month_day_nano_interval": "month_day_nano_interval",
}
_UNITS = ("s", "ms", "us", "ns")
_DECIMALS = {32: 9, 64: 18, 128: 38, 256: 76}
_LISTS = ("list", "large_list", "list_view", "large_list_view")
_DEEPEST = 64
_LONGEST = 1 << 31  # of a width in bytes or values


def no_form(kind: Any, where: str) -> NoReturn:
    """Raise the error for a type that has no byte form."""
    raise EnvelopeError(
        f"{where}: needed a type that has a byte form (numbers, times, decimals, booleans, text, bytes, lists, structs "
        f"and maps of these); got {kind}; cast it or leave the column out"
    )


def schema_to_json(schema: pa.Schema, where: str = "schema") -> list[dict[str, Any]]:
    """JSON values that say all of a schema but its metadata.

    Raises EnvelopeError for a type without a byte form (unions, extension types).
    """
    return [_field_to_json(field, where) for field in schema]


def schema_from_json(value: Any, where: str = "schema") -> pa.Schema:
    """The schema that `schema_to_json` described.  Raises EnvelopeError for anything else."""
    if not isinstance(value, list):
        _refuse(where, "a list of fields", value)
    return pa.schema([_field_from_json(each, where, 0) for each in value])


def _field_to_json(field: pa.Field, where: str) -> dict[str, Any]:
    out: dict[str, Any] = {"name": field.name, "type": _type_to_json(field.type, f"{where}, column {field.name!r}")}
    return out if field.nullable else {**out, "nullable": False}


def _type_to_json(kind: pa.DataType, where: str) -> Any:
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType) or types.is_union(kind):
        no_form(kind, where)
    if str(kind) in _PLAIN:
        return str(kind)
    if types.is_timestamp(kind):
        return {"is": "timestamp", "unit": kind.unit, "zone": kind.tz}
    for name, test in (("time32", types.is_time32), ("time64", types.is_time64), ("duration", types.is_duration)):
        if test(kind):
            return {"is": name, "unit": kind.unit}
    if types.is_decimal(kind):
        return {"is": "decimal", "bits": kind.bit_width, "precision": kind.precision, "scale": kind.scale}
    if types.is_fixed_size_binary(kind):
        return {"is": "bytes", "width": kind.byte_width}
    if types.is_dictionary(kind):
        index, values = _type_to_json(kind.index_type, where), _type_to_json(kind.value_type, where)
        return {"is": "dictionary", "index": index, "values": values, "ordered": bool(kind.ordered)}
    if types.is_run_end_encoded(kind):
        return {
            "is": "runs",
            "ends": _type_to_json(kind.run_end_type, where),
            "values": _type_to_json(kind.value_type, where),
        }
    if types.is_struct(kind):
        return {"is": "struct", "fields": [_field_to_json(each, where) for each in kind.fields]}
    if types.is_map(kind):
        pair = [_field_to_json(each, where) for each in (kind.key_field, kind.item_field)]
        return {"is": "map", "fields": pair, "sorted": bool(kind.keys_sorted)}
    if types.is_fixed_size_list(kind):
        return {"is": "array", "width": kind.list_size, "fields": [_field_to_json(kind.value_field, where)]}
    for name in _LISTS:
        if getattr(types, f"is_{name}")(kind):
            return {"is": name, "fields": [_field_to_json(kind.value_field, where)]}
    no_form(kind, where)


def _field_from_json(value: Any, where: str, depth: int) -> pa.Field:
    if not isinstance(value, dict) or not {"name", "type"} <= set(value) <= {"name", "type", "nullable"}:
        _refuse(where, "a field of name and type", value)
    name, nullable = value["name"], value.get("nullable", True)
    if not isinstance(name, str) or not isinstance(nullable, bool):
        _refuse(where, "a name as text and nullable as true or false", value)
    if any("\ud800" <= each <= "\udfff" for each in name):
        _refuse(where, "a name without halves of surrogate pairs", name)
    return pa.field(name, _type_from_json(value["type"], where, depth), nullable)


def _type_from_json(value: Any, where: str, depth: int) -> pa.DataType:
    if isinstance(value, str):
        if value not in _PLAIN:
            _refuse(where, "a known type", value)
        return getattr(pa, _PLAIN[value])()
    if depth > _DEEPEST or not isinstance(value, dict) or not isinstance(value.get("is"), str):
        _refuse(where, f"a known type, at most {_DEEPEST} deep", value)
    if value["is"] not in _FLAT and value["is"] not in _NESTED:
        _refuse(where, "a known type", value)
    try:
        if value["is"] in _FLAT:
            return _FLAT[value["is"]](value, where)
        return _NESTED[value["is"]](value, where, depth + 1)
    except (KeyError, TypeError, ValueError, OverflowError, pa.ArrowException) as error:
        if isinstance(error, EnvelopeError):
            raise
        _refuse(where, "a known type", value)


def _timestamp(value: dict[str, Any], where: str) -> pa.DataType:
    zone = value["zone"]
    if zone is not None and (not isinstance(zone, str) or not zone):
        _refuse(where, "a time zone as text or none", zone)
    return pa.timestamp(_one(value["unit"], _UNITS, where), zone)


def _decimal(value: dict[str, Any], where: str) -> pa.DataType:
    bits = _one(value["bits"], tuple(_DECIMALS), where)
    precision = _count(value["precision"], 1, _DECIMALS[bits], where)
    scale = _count(value["scale"], -_DECIMALS[bits], _DECIMALS[bits], where)
    return getattr(pa, f"decimal{bits}")(precision, scale)


def _dictionary(value: dict[str, Any], where: str, depth: int) -> pa.DataType:
    index = _type_from_json(value["index"], where, depth)
    if not pa.types.is_integer(index):
        _refuse(where, "whole numbers as the codes of a dictionary", value["index"])
    return pa.dictionary(index, _type_from_json(value["values"], where, depth), _flag(value["ordered"], where))


def _runs(value: dict[str, Any], where: str, depth: int) -> pa.DataType:
    ends = _type_from_json(value["ends"], where, depth)
    if not any(test(ends) for test in (pa.types.is_int16, pa.types.is_int32, pa.types.is_int64)):
        _refuse(where, "int16, int32 or int64 as the ends of runs", value["ends"])
    return pa.run_end_encoded(ends, _type_from_json(value["values"], where, depth))


def _map(value: dict[str, Any], where: str, depth: int) -> pa.DataType:
    key, item = _fields(value, where, depth, 2)
    if key.nullable:
        _refuse(where, "keys of a map that are never null", value)
    return pa.map_(key, item, keys_sorted=_flag(value["sorted"], where))


_FLAT: dict[str, Callable[[dict[str, Any], str], Any]] = {
    "timestamp": _timestamp,
    "time32": lambda value, where: pa.time32(_one(value["unit"], ("s", "ms"), where)),
    "time64": lambda value, where: pa.time64(_one(value["unit"], ("us", "ns"), where)),
    "duration": lambda value, where: pa.duration(_one(value["unit"], _UNITS, where)),
    "decimal": _decimal,
    "bytes": lambda value, where: pa.binary(_count(value["width"], 0, _LONGEST - 1, where)),
}
_NESTED: dict[str, Callable[[dict[str, Any], str, int], Any]] = {
    "dictionary": _dictionary,
    "runs": _runs,
    "struct": lambda value, where, depth: pa.struct(_fields(value, where, depth, None)),
    "map": _map,
    "array": lambda value, where, depth: pa.list_(
        _fields(value, where, depth, 1)[0], _count(value["width"], 0, _LONGEST - 1, where)
    ),
    "list": lambda value, where, depth: pa.list_(_fields(value, where, depth, 1)[0]),
    "large_list": lambda value, where, depth: pa.large_list(_fields(value, where, depth, 1)[0]),
    "list_view": lambda value, where, depth: pa.list_view(_fields(value, where, depth, 1)[0]),
    "large_list_view": lambda value, where, depth: pa.large_list_view(_fields(value, where, depth, 1)[0]),
}


def _fields(value: dict[str, Any], where: str, depth: int, number: int | None) -> list[pa.Field]:
    fields = value["fields"]
    if not isinstance(fields, list) or number not in (None, len(fields)):
        _refuse(where, "a list of fields" if number is None else f"{number} fields", fields)
    return [_field_from_json(each, where, depth) for each in fields]


def _one(value: Any, known: tuple[Any, ...], where: str) -> Any:
    if isinstance(value, bool) or value not in known:
        _refuse(where, f"one of {', '.join(map(str, known))}", value)
    return value


def _count(value: Any, low: int, high: int, where: str) -> int:
    if type(value) is not int or not low <= value <= high:
        _refuse(where, f"a whole number from {low} to {high}", value)
    return value


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        _refuse(where, "true or false", value)
    return value


def _refuse(where: str, needed: str, came: Any) -> NoReturn:
    try:
        text = repr(came)
    except RecursionError:
        text = type(came).__name__
    raise EnvelopeError(
        f"{where}: needed {needed}; got {text if len(text) <= 60 else text[:57] + '...'}; the bytes are not what Nile "
        "wrote"
    )
