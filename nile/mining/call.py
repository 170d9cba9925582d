"""A table function in FROM, such as PEAKS (stream, value, key, prominence => 3): what it is given, what it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from nile.mining.matches import Matcher
from nile.mining.peaks import PeakFinder
from nile.mining.periods import PeriodFinder
from nile.mining.profile import Profiler
from nile.summaries.errors import ConfigError
from nile.summaries.heavy import pa

__all__ = ["FUNCTIONS", "Call", "Finder", "Found", "Function", "Mined"]

Array = np.ndarray[Any, Any]
Option = int | float | str
Found = tuple[int, int, tuple[Any, ...]]
"""What was found: the place of the tuple that decided it, its ts (ns), and the columns."""


class Finder(Protocol):
    """Looks at the values of one key, in their order.  However they are cut into batches, it finds the same."""

    def push(self, at: Array, ts: Array, values: Array) -> list[Found]:
        """What these values decide.  at: int64 [n], places in the stream; ts: [n] ns; values: [n] or [n, width]."""

    def finish(self) -> list[Found]:
        """What is decided by that there are no more."""


@dataclass(frozen=True, slots=True)
class Function:
    """A table function.  given: its options and what they are unless said (a type: has to be said); gives: its columns.

    values: whether it looks at numbers, or at lists of numbers; make: a finder, from options and the library's rows.
    """

    given: Mapping[str, Option | type]
    gives: tuple[tuple[str, str], ...]
    values: str
    make: Callable[[Mapping[str, Any], Any], Finder]


FUNCTIONS: Mapping[str, Function] = {
    "PEAKS": Function(
        {"prominence": float, "span": 101, "smooth": 0.0},
        (("at", "time"), ("height", "number"), ("prominence", "number")),
        "numbers",
        lambda given, _: PeakFinder(**given),
    ),
    "PERIODS": Function(
        {"span": 512, "least": 0.3},
        (("since", "time"), ("period", "number"), ("seconds", "number"), ("strength", "number")),
        "numbers",
        lambda given, _: PeriodFinder(**given),
    ),
    "PROFILE": Function(
        {"length": int, "span": 1024},
        (("since", "time"), ("distance", "number"), ("nearest", "time")),
        "numbers",
        lambda given, _: Profiler(**given),
    ),
    "MATCHES": Function(
        {"library": str, "measure": "cosine", "within": float("inf")},
        (("match", "text"), ("distance", "number")),
        "lists",
        lambda given, library: Matcher(library, given["measure"], given["within"]),
    ),
}
"""Of each name what it is."""


@dataclass(frozen=True, slots=True)
class Call:
    """A table function over a stream.  key: the column that tells series apart; options: all of them, in order."""

    function: str
    stream: str
    value: str
    key: str | None
    options: tuple[tuple[str, Option], ...]

    @classmethod
    def of(cls, function: str, names: list[str], said: Mapping[str, Option]) -> Call:
        """A call as it was written.  Raises ConfigError."""
        known = FUNCTIONS[function]
        forms = [f"{name} => ..." for name, usual in known.given.items() if isinstance(usual, type)]
        form = f"{function} ({', '.join(['stream, value [, key]', *forms])})"
        if len(names) not in (2, 3):
            raise ConfigError(f"{function}: needed {form}; got {len(names)} names")
        unknown = next((name for name in said if name not in known.given), None)
        if unknown is not None:
            raise ConfigError(f"{function}: needed options among {', '.join(known.given)}; got {unknown}")
        options: dict[str, Option] = {}
        for name, usual in known.given.items():
            kind: type[Any] = usual if isinstance(usual, type) else type(usual)
            if name not in said and isinstance(usual, type):
                raise ConfigError(f"{function}: needed {name}; got none; write {form}")
            value = said.get(name, usual)
            assert not isinstance(value, type)
            fits = isinstance(value, str) if kind is str else isinstance(value, int | float)
            if not fits or (kind is int and value != int(value)):
                raise ConfigError(f"{function}, {name}: needed {_KINDS[kind]}; got {value!r}")
            options[name] = str(value) if kind is str else int(value) if kind is int else float(value)
        made = cls(function, names[0], names[1], names[2] if len(names) == 3 else None, tuple(options.items()))
        if function != "MATCHES":
            made.finder(None)  # checks
        return made

    @property
    def library(self) -> str | None:
        """The stored relation that it looks things up in."""
        found = dict(self.options).get("library")
        return None if found is None else str(found)

    def said(self) -> list[tuple[str, Option]]:
        """The options that are not as they are unless said."""
        usual = FUNCTIONS[self.function].given
        return [(name, value) for name, value in self.options if value != usual[name]]

    def finder(self, library: Any) -> Finder:
        """A new one.  library: rows of that relation.  Raises ConfigError for options out of range."""
        return FUNCTIONS[self.function].make(dict(self.options), library)

    def schema(self, stream: pa.Schema, time: str) -> pa.Schema:
        """What it gives of a stream with these columns: when it was known, the key, and what was found.

        Raises ConfigError.
        """
        where = f"{self.function} ({self.stream}, ...)"
        missing = next((name for name in (self.value, self.key) if name and name not in stream.names), None)
        if missing is not None:
            raise ConfigError(
                f"{where}: needed a column of '{self.stream}' ({', '.join(stream.names)}); got '{missing}'"
            )
        kind = stream.field(self.value).type
        lists = FUNCTIONS[self.function].values == "lists"
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
        inner = kind.value_type if is_list else kind
        if is_list != lists or not (pa.types.is_integer(inner) or pa.types.is_floating(inner)):
            raise ConfigError(
                f"{where}: needed {'lists of numbers' if lists else 'numbers'} in '{self.value}'; got {kind}"
            )
        kinds = {"time": pa.timestamp("ns"), "number": pa.float64(), "text": pa.string()}
        fields = [pa.field(time, kinds["time"])]
        if self.key is not None:
            found = stream.field(self.key).type
            fields.append(pa.field(self.key, found.value_type if pa.types.is_dictionary(found) else found))
        fields += [pa.field(name, kinds[each]) for name, each in FUNCTIONS[self.function].gives]
        twice = next((one.name for one in fields if [each.name for each in fields].count(one.name) > 1), None)
        if twice is not None:
            raise ConfigError(f"{where}: needed a time and a key not called '{twice}', as a result is; rename it")
        return pa.schema(fields)


class Mined(str):
    """The name of the stream that a call gives: the call itself, as SQL writes it."""

    call: Call
    __slots__ = ("call",)


_KINDS = {int: "a whole number", float: "a number", str: "text"}
