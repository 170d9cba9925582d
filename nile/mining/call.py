"""A table function in FROM, such as PEAKS (stream, value, key, prominence => 3): what it is given, what it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from nile.base.plain import decoded_type
from nile.mining.clusters import Clusterer
from nile.mining.matches import Matcher
from nile.mining.patterns import PatternFinder
from nile.mining.peaks import PeakFinder
from nile.mining.periods import PeriodFinder
from nile.mining.profile import Profiler
from nile.mining.sequences import SequenceFinder
from nile.mining.trees import TreeGrower, TreeMatcher, tree_of
from nile.summaries.errors import ConfigError
from nile.summaries.heavy import pa

__all__ = ["FUNCTIONS", "Call", "Finder", "Found", "Function", "KeyedFinder", "Mined"]

Array = np.ndarray[Any, Any]
Option = int | float | str
Found = tuple[int, int, tuple[Any, ...]]
"""What was found: the place of the tuple that decided it, its ts (ns), and the columns."""


class Finder(Protocol):
    """Looks at the values of one key, in their order.  However they are cut into batches, it finds the same."""

    def push(self, at: Array, ts: Array, values: Any) -> list[Found]:
        """What these values decide.  at: int64 [n], places in the stream; ts: [n] ns.

        values: float64 [n] for numbers, [n, width] for lists, n texts for symbols.
        """

    def finish(self) -> list[Found]:
        """What is decided by that there are no more."""


class KeyedFinder(Protocol):
    """Looks at the values of all series, in the order of their tuples."""

    def push_keyed(self, at: Array, ts: Array, values: Any, keys: list[Any]) -> list[tuple[Any, Found]]:
        """(key, what its value decides).  keys: [n], of each value; as `Finder.push` otherwise."""

    def finish(self) -> list[tuple[Any, Found]]:
        """What is decided by that there are no more."""


@dataclass(frozen=True, slots=True)
class Function:
    """A table function.  given: its options and what they are unless said (a type: has to be said); gives: its columns.

    values: whether it looks at numbers, at lists of numbers, or at symbols, which are texts or numbers rounded down to
    a multiple of its option `width`; make: a finder, from options and what `ready` makes of the library's rows, once
    for all series; across: one for all series.
    """

    given: Mapping[str, Option | type]
    gives: tuple[tuple[str, str], ...]
    values: str
    make: Callable[[Mapping[str, Any], Any], Any]
    across: bool = False
    ready: Callable[[Mapping[str, Any], Any], Any] = lambda _, library: library


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
        lambda given, library: (
            TreeMatcher(library, given["within"])
            if given["measure"] == "tree"
            else Matcher(library, given["measure"], given["within"])
        ),
        ready=lambda given, library: tree_of(library) if given["measure"] == "tree" else library,
    ),
    "CLUSTERS": Function(
        {"radius": float, "half_life": float("inf"), "most": 100},
        (("cluster", "whole"), ("distance", "number"), ("weight", "number")),
        "lists",
        lambda given, _: Clusterer(**given),
    ),
    "PATTERNS": Function(
        {"period": int, "periods": 30, "least": 0.8, "most": 20, "width": 1.0},
        (("since", "time"), ("pattern", "text"), ("symbols", "whole"), ("share", "number")),
        "symbols",
        lambda given, _: PatternFinder(**given),
    ),
    "SEQUENCES": Function(
        {"length": int, "series": 2, "span": 1024, "width": 1.0},
        (("since", "time"), ("sequence", "text"), ("series", "whole")),
        "symbols",
        lambda given, _: SequenceFinder(**given),
        across=True,
    ),
    "TREE": Function(
        {"depth": 10, "least": 1, "every": 0, "span": 10_000},
        (
            ("tree", "whole"),
            ("node", "whole"),
            ("feature", "whole"),
            ("threshold", "number"),
            ("below", "whole"),
            ("above", "whole"),
            ("share", "number"),
            ("examples", "whole"),
        ),
        "lists",
        lambda given, _: TreeGrower(**given),
        across=True,
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

    def finder(self, library: Any) -> Any:
        """A new one.  library: what `ready` made of that relation.  Raises ConfigError for options out of range."""
        return FUNCTIONS[self.function].make(dict(self.options), library)

    def ready(self, library: Any) -> Any:
        """What finders look things up in, of the rows of that relation.  Raises ConfigError."""
        return FUNCTIONS[self.function].ready(dict(self.options), library)

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
        wanted = FUNCTIONS[self.function].values
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
        inner = kind.value_type if is_list or pa.types.is_dictionary(kind) else kind
        fits = pa.types.is_integer(inner) or pa.types.is_floating(inner)
        if wanted == "symbols":
            fits = fits or pa.types.is_string(inner) or pa.types.is_large_string(inner)
        if is_list != (wanted == "lists") or not fits:
            raise ConfigError(f"{where}: needed {_VALUES[wanted]} in '{self.value}'; got {kind}")
        if FUNCTIONS[self.function].across and self.key is None:
            raise ConfigError(f"{where}: needed a key, which tells series apart; got none; name its column third")
        kinds = {"time": pa.timestamp("ns"), "number": pa.float64(), "text": pa.string(), "whole": pa.int64()}
        fields = [pa.field(time, kinds["time"])]
        if self.key is not None:
            found = stream.field(self.key).type
            fields.append(pa.field(self.key, decoded_type(found)))
        fields += [pa.field(name, kinds[each]) for name, each in FUNCTIONS[self.function].gives]
        twice = next((one.name for one in fields if [each.name for each in fields].count(one.name) > 1), None)
        if twice is not None:
            raise ConfigError(f"{where}: needed a time and a key not called '{twice}', as a result is; rename it")
        return pa.schema(fields)


class Mined(str):
    """The name of the stream that a call gives: the call itself, as SQL writes it."""

    call: Call
    __slots__ = ("call",)


_VALUES = {"lists": "lists of numbers", "numbers": "numbers", "symbols": "text or numbers"}
_KINDS = {int: "a whole number", float: "a number", str: "text"}
