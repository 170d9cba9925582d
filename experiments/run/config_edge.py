"""The edge where a config is checked: types, ranges and names, with pydantic.

Gives plain values for the dataclasses of `experiments.run.config`, or one `Finding` a mistake.  Nothing else of
the project sees a pydantic object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from nile.base.durations import parse_duration
from nile.operators.common.plan import METHODS, SCANNING
from preferences.budget import BUDGET_UNITS
from pyramid.grid.spec import CONFIDENCES, STRUCTURES
from summaries.errors import ConfigError

__all__ = ["GUIDES", "METHODS", "PREFERENCES", "Finding", "checked", "dotted", "nearest", "shown"]

PREFERENCES = ("desc", "weighted", "asc")
GUIDES = ("countsketch", "directory")
OUTPUTS = ("pairs", "ranges")
COSTS = ("engine", "memory")
REPLAYS = ("none", "exponential", "data")
SKETCHES = ("countsketch",)


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake: the key it is in, as a path of names and list places, and what to say of it."""

    path: tuple[str | int, ...]
    message: str

    def __str__(self) -> str:
        return f"{dotted(self.path)}: {self.message}" if self.path else self.message


def dotted(path: tuple[str | int, ...]) -> str:
    """A path as a person would write it: `summary.rate`, `budgets[2]`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


def checked(table: Mapping[str, Any]) -> tuple[dict[str, Any], list[Finding]]:
    """The values of a config that were set, durations in ns and lists as tuples, or what is wrong with them.

    A value of None counts as not set.  Keys that are not set are absent, so that defaults stay with the
    dataclasses.
    """
    given = _set(table)
    try:
        values = _Run.model_validate(given).model_dump(exclude_unset=True)
    except ValidationError as error:
        return {}, [_finding(dict(mistake), given) for mistake in error.errors(include_url=False)]
    sides = [values["left"]["source"], values["right"]["source"]]
    if "synthetic" in values and "synthetic" not in sides:
        told = 'needed a side with source = "synthetic", got none; set one, or take this table out'
        return {}, [Finding(("synthetic",), told)]
    scanning = [name for name in values.get("methods", ()) if name in SCANNING]
    if scanning and values.get("output") == "ranges":
        told = (
            f"needed methods that keep position lists, for ranges; got {scanning[0]!r}; take it out, or ask for pairs"
        )
        return {}, [Finding(("methods",), told)]
    return values, []


# --- kinds of values --------------------------------------------------------------------------------------


def _many(value: object) -> object:
    """A list as a tuple, one value alone as a tuple of it."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    for i, value in enumerate(values):
        if value in values[:i]:
            raise ConfigError(f"needed each value once; got {value!r} twice")
    return values


def _names(names: tuple[str, ...]) -> str:
    return f"one of {', '.join(names)}" if len(names) > 1 else names[0]


def _one_of(names: tuple[str, ...]) -> AfterValidator:
    def check(value: str) -> str:
        if value not in names:
            raise ConfigError(f"needed {_names(names)}; got {shown(value)}{nearest(value, names)}")
        return value

    return AfterValidator(check)


def _duration(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ConfigError(f'needed a duration, such as 3600 or "1 hour"; got {shown(value)}')
    return parse_duration(value, where=_DURATION)


def _window(value: object) -> object:
    return None if value == "none" else _duration(value)


def _power(value: int) -> int:
    if value & (value - 1):
        raise ConfigError(f"needed a power of two; got {value}; try {1 << value.bit_length()}")
    return value


_DURATION = "duration"
_Many, _Distinct, _AtLeastOne = BeforeValidator(_many), AfterValidator(_distinct), Field(min_length=1)

Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Natural = Annotated[int, Field(ge=0, le=2**63 - 1)]
Duration = Annotated[int, BeforeValidator(_duration)]
Budget = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Fade = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Threshold = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
Preference = Annotated[str, _one_of(PREFERENCES)]
Method = Annotated[str, _one_of(METHODS)]
Guide = Annotated[str, _one_of(GUIDES)]
Costs = Annotated[str, _one_of(COSTS)]
Structure = Annotated[str, _one_of(STRUCTURES)]


# --- the tables: the description of a field says what is needed; its default is never used ----------------


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Stream(_Table):
    source: Text = Field(description='a path to a .parquet or .csv file, or "synthetic"')
    time: Text = Field(description='the name of the time column, such as time = "ts"')
    key: Text = Field(description='the name of the join column, such as key = "item_id"')
    where: Text = Field("", description='a condition in SQL, such as "vstore = 0"')


class _Synthetic(_Table):
    seed: Natural = Field(0, description="a whole number >= 0")
    tuples: Count = Field(0, description="a whole number >= 1")
    items: Count = Field(0, description="a whole number >= 1")


class _Summary(_Table):
    granularity: Duration = Field(0, description="a duration")
    rate: Annotated[int, Field(ge=2, le=4096)] = Field(0, description="a whole number from 2 to 4096")
    depth: Annotated[int, Field(ge=1, le=32)] = Field(0, description="a whole number from 1 to 32")
    structure: Structure = Field("", description=_names(STRUCTURES))
    buckets: Annotated[int, Field(ge=1, le=4096), AfterValidator(_power)] = Field(
        0, description="a power of two from 1 to 4096"
    )
    sketch: Annotated[str, _one_of(SKETCHES)] = Field("", description=_names(SKETCHES))
    confidence: Annotated[str, _one_of(CONFIDENCES)] = Field("", description=_names(CONFIDENCES))
    threshold: Threshold = Field(0.0, description="a confidence in [0, 1)")
    max_length: Duration = Field(0, description="a duration")
    sketch_rows: Annotated[int, Field(ge=1, le=15)] = Field(0, description="a whole number from 1 to 15")
    sketch_columns: Annotated[int, Field(ge=1, le=2**20), AfterValidator(_power)] = Field(
        0, description="a power of two from 1 to 1048576"
    )


class _Bursts(_Table):
    factor: Annotated[float, Field(gt=1, allow_inf_nan=False)] = Field(0.0, description="a number above 1")
    share: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = Field(0.0, description="a share in (0, 1)")
    tuples: Count = Field(0, description="a whole number >= 1")


class _Run(_Table):
    left: _Stream = Field(description="a table [left] with source, time, key and, if wanted, where")
    right: _Stream = Field(description="a table [right] with source, time, key and, if wanted, where")
    window: Annotated[int | None, BeforeValidator(_window)] = Field(None, description="a duration")
    budgets: Annotated[tuple[Budget, ...], _Many, _Distinct, _AtLeastOne] = Field(
        (), description="finite fractions > 0, such as [0.1, 0.5]"
    )
    budget_unit: Annotated[str, _one_of(BUDGET_UNITS)] = Field("", description=_names(BUDGET_UNITS))
    preferences: Annotated[tuple[Preference, ...], _Many, _Distinct, _AtLeastOne] = Field(
        (), description=_names(PREFERENCES)
    )
    methods: Annotated[tuple[Method, ...], _Many, _Distinct, _AtLeastOne] = Field((), description=_names(METHODS))
    seeds: Annotated[tuple[Natural, ...], _Many, _Distinct, _AtLeastOne] = Field((), description="whole numbers >= 0")
    guides: Annotated[tuple[Guide, ...], _Many, _Distinct, _AtLeastOne] = Field((), description=_names(GUIDES))
    fade: Fade = Field(0.0, description="one number in (0, 1]")
    output: Annotated[str, _one_of(OUTPUTS)] = Field("", description=_names(OUTPUTS))
    costs: Annotated[tuple[Costs, ...], _Many, _Distinct, _AtLeastOne] = Field((), description=_names(COSTS))
    replay: Annotated[str, _one_of(REPLAYS)] = Field("", description=_names(REPLAYS))
    replay_mean: Duration = Field(0, description="a duration")
    speed: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(0.0, description="a number > 0")
    structures: Annotated[tuple[Structure, ...], _Many, _Distinct, _AtLeastOne] = Field(
        (), description=_names(STRUCTURES)
    )
    outlier_cap: Count = Field(0, description="a whole number >= 1")
    forgetting: bool = Field(False, description="true or false")
    batch_rows: Count = Field(0, description="a whole number >= 1")
    bursts: _Bursts | None = Field(None, description="a table [bursts]")
    synthetic: _Synthetic | None = Field(None, description="a table [synthetic]")
    summary: _Summary | None = Field(None, description="a table [summary]")


_TABLES: dict[str, type[_Table]] = {
    "left": _Stream,
    "right": _Stream,
    "bursts": _Bursts,
    "synthetic": _Synthetic,
    "summary": _Summary,
}


# --- what went wrong, in the words of the file ------------------------------------------------------------


def _finding(mistake: dict[str, Any], given: Mapping[str, Any]) -> Finding:
    """One error of pydantic as a Finding."""
    path: tuple[str | int, ...] = mistake["loc"]
    value = mistake["input"]
    if isinstance(path[-1], int) and not isinstance(given.get(str(path[0])), list | tuple):
        path = path[:-1]  # one value stood where a list may stand
    if mistake["type"] == "extra_forbidden":
        return Finding(path, _unknown(str(path[-1]), [str(name) for name in path[:-1]]))
    if mistake["type"] == "value_error":
        return Finding(path, str(mistake["ctx"]["error"]).removeprefix(f"{_DURATION}: "))
    needed = _needed(path)
    if mistake["type"] == "missing":
        return Finding(path, f"needed {needed}; it is missing")
    return Finding(path, f"needed {needed}; got {shown(value)}")


def _needed(path: tuple[str | int, ...]) -> str:
    """What the field at `path` asks for, as its description says."""
    table: type[_Table] = _Run
    for name in path[:-1]:
        table = _TABLES.get(str(name), table)
    names = [str(part) for part in path if not isinstance(part, int)]
    return table.model_fields[names[-1]].description or "another value"


def _unknown(name: str, table: list[str]) -> str:
    """What to say of a key that its table does not know: the nearest known one, or where it belongs."""
    model = _TABLES[table[0]] if table else _Run
    known = tuple(model.model_fields)
    told = f"needed a known key; got {name!r}"
    homes = ["at the top of the file, above the first [table]"] if name in _Run.model_fields else []
    homes += [f"in [{other}]" for other, fields in _TABLES.items() if name in fields.model_fields]
    if homes:
        return f"{told}, which belongs {' or '.join(homes)}"
    return told + (nearest(name, known) or f"; known here: {', '.join(known)}")


def nearest(word: str, names: tuple[str, ...]) -> str:
    """What to add to a message on a misspelt name: the known one nearest to it, or nothing."""
    near = get_close_matches(word.lower(), names, n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def shown(value: object) -> str:
    """A value as it came, cut to a readable length."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple) and not value:
        return "an empty list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _set(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table without what is None, in its sub-tables too."""
    return {
        name: _set(value) if isinstance(value, Mapping) else value for name, value in table.items() if value is not None
    }
