"""States as the content of an envelope and back: JSON values, and arrays by name.

A state (`nile.exact.state.held`) is a dict of JSON values, arrays, Arrow batches, and dicts and lists of these.
Every array becomes {"array": its number}, every batch {"rows": its number, "schema": ...}, numbered in the order they
are met, and its arrays stand under that number.  So the same state gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from nile.summaries.columns import decode, encode
from nile.summaries.envelope import Envelope, pack
from nile.summaries.errors import EnvelopeError
from nile.summaries.heavy import pa
from nile.summaries.schemas import schema_from_json, schema_to_json

__all__ = ["content", "flat", "of", "packed"]

Array = np.ndarray[Any, Any]

_DEEPEST = 64


def flat(state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Array]]:
    """(params, arrays) for `nile.summaries.envelope.pack`.  Raises EnvelopeError for rows without a byte form.

    Numbers without nulls are views of the state: it must not be changed before they are packed.
    """
    arrays: dict[str, Array] = {}
    out = _flat(state, arrays, "state")
    return out, arrays


def packed(kind: str, state: Mapping[str, Any]) -> bytes:
    """The byte form of a state.  Cost: as `nile.summaries.envelope.pack`."""
    return pack(kind, *flat(state))


def content(envelope: Envelope) -> dict[str, Any]:
    """The state in an envelope that `flat` filled."""
    return of(envelope.params, envelope.arrays, envelope.where)


def of(params: Mapping[str, Any], arrays: Mapping[str, Array], where: str = "state") -> dict[str, Any]:
    """The state that `flat` took apart, over memory of its own: what it came from (a mapped file) may go.

    Raises EnvelopeError for anything that does not fit together.
    """
    groups: dict[str, dict[str, Array]] = {}
    for name, array in arrays.items():
        number, _, rest = name.partition("/")
        groups.setdefault(number, {})[rest] = array.copy()
    state = _made(params, groups, where, 0)
    if not isinstance(state, dict):
        _refuse(where, "a dict", state)
    if groups:
        _refuse(where, "no more arrays than are named", ", ".join(sorted(groups)[:3]))
    return state


def _flat(value: Any, arrays: dict[str, Array], where: str) -> Any:
    if isinstance(value, Mapping):
        return {name: _flat(each, arrays, f"{where}, {name}") for name, each in value.items()}
    if isinstance(value, list):
        return [_flat(each, arrays, f"{where} {i}") for i, each in enumerate(value)]
    if isinstance(value, np.ndarray):
        number = _next(arrays)
        arrays[f"{number}/"] = value
        return {"array": number}
    if isinstance(value, pa.RecordBatch):
        number = _next(arrays)
        schema = schema_to_json(value.schema, where)
        arrays.update({f"{number}/{name}": array for name, array in encode(value, where).items()})
        return {"rows": number, "schema": schema}
    return value


def _next(arrays: dict[str, Array]) -> int:
    """One more than the number of the last name: names are given in order."""
    return int(next(reversed(arrays)).partition("/")[0]) + 1 if arrays else 0


def _made(value: Any, groups: dict[str, dict[str, Array]], where: str, depth: int) -> Any:
    if depth > _DEEPEST:
        _refuse(where, f"a state at most {_DEEPEST} deep", "more")
    if isinstance(value, list):
        return [_made(each, groups, where, depth + 1) for each in value]
    if not isinstance(value, Mapping):
        return value
    if set(value) == {"array"}:
        group = _group(value["array"], groups, where)
        if set(group) != {""}:
            _refuse(where, "one array", ", ".join(sorted(group)[:3]))
        return group[""]
    if set(value) == {"rows", "schema"}:
        return decode(_group(value["rows"], groups, where), schema_from_json(value["schema"], where), where)
    return {name: _made(each, groups, where, depth + 1) for name, each in value.items()}


def _group(number: Any, groups: dict[str, dict[str, Array]], where: str) -> dict[str, Array]:
    """The arrays of a number, each of which is asked for once."""
    if type(number) is not int or str(number) not in groups:
        _refuse(where, "the number of arrays that are there and are named once", number)
    return groups.pop(str(number))


def _refuse(where: str, needed: str, came: Any) -> NoReturn:
    raise EnvelopeError(f"{where}: needed {needed}; got {str(came)[:60]}; the bytes are not what Nile wrote")
