"""What operators hold, taken out as plain values and put back with every value checked.

A state is a dict of JSON values, numpy arrays, Arrow batches, and dicts and lists of these.  It says what is held, not
how: rows in the order they came or leave, times, totals, clocks.  So it is the same whatever the batches and steps
were that led to it, and tables, codes and caches, which follow from it, are made anew.

A class with state lists its attributes: `HELD` names those that a state restores, `DERIVED` those that the definition
gives or that follow; a test compares both with what its objects have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from nile.exact.state.arrow import Array, pa
from nile.summaries.errors import EnvelopeError

__all__ = ["MOST", "Held", "State", "all_of"]

State = dict[str, Any]

MOST = 1 << 62
"""The largest count or ordinal: what is added to it stays within 64 bits."""

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


class Held:
    """A state that is being read.  where: what it is of, for messages.  Every reader raises EnvelopeError."""

    def __init__(self, state: Mapping[str, Any], where: str) -> None:
        self.where = where
        if not isinstance(state, Mapping):
            self.refuse("a dict", state)
        self._state = state
        self._left = set(state)

    def refuse(self, needed: str, came: object) -> NoReturn:
        """Raise EnvelopeError in the house form."""
        text = f"{came.dtype} of shape {came.shape}" if isinstance(came, np.ndarray) else str(came)
        text = text if len(text) <= 60 else text[:57] + "..."
        raise EnvelopeError(f"{self.where}: needed {needed}; got {text}; the state is not of this query, or altered")

    def has(self, name: str) -> bool:
        """Whether there is anything of this name."""
        return name in self._state

    def kind(self, name: str) -> str:
        """Of an array its dtype, of all else nothing; it is still to be read."""
        value = self._state.get(name)
        return str(value.dtype) if isinstance(value, np.ndarray) else ""

    def integer(self, name: str, low: int = _LEAST, high: int = _MOST) -> int:
        """A whole number in [low, high]."""
        value = self._take(name)
        if type(value) is not int or not low <= value <= high:
            self.refuse(f"{name!r} from {low} to {high}", value)
        return value

    def integer_or_none(self, name: str) -> int | None:
        """A whole number of 64 bits, or None."""
        if self._state.get(name) is None:
            self._take(name)
            return None
        return self.integer(name)

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self._take(name)
        if not isinstance(value, bool):
            self.refuse(f"{name!r} to be true or false", value)
        return value

    def text(self, name: str) -> str:
        """Text."""
        value = self._take(name)
        if not isinstance(value, str):
            self.refuse(f"{name!r} to be text", value)
        return value

    def array(self, name: str, dtype: str, shape: tuple[int | None, ...]) -> Array:
        """An array of this dtype and shape (None: any length), which may be read only."""
        value = self._take(name)
        if not isinstance(value, np.ndarray):
            self.refuse(f"{name!r} to be an array", value)
        fits = value.ndim == len(shape) and all(w in (None, h) for w, h in zip(shape, value.shape, strict=True))
        if value.dtype != np.dtype(dtype) or not fits:
            self.refuse(f"{name!r} of {dtype} and shape {shape}", value)
        return value

    def rising(self, name: str, n: int | None = None) -> Array:
        """int64 [n], not falling."""
        value = self.array(name, "int64", (n,))
        if (value[1:] < value[:-1]).any():
            self.refuse(f"{name!r} not to fall", value)
        return value

    def counts(self, name: str, n: int | None, least: int = 0) -> Array:
        """int64 [n], none below `least`."""
        value = self.array(name, "int64", (n,))
        if value.min(initial=least) < least:
            self.refuse(f"{name!r} of {least} or more", int(value.min()))
        return value

    def rows(self, name: str, schema: Any, n: int | None = None) -> Any:
        """A batch with these columns, of n rows (None: any)."""
        value = self._take(name)
        if not isinstance(value, pa.RecordBatch) or value.schema.types != schema.types:
            self.refuse(
                f"{name!r} with columns of {', '.join(map(str, schema.types))}", getattr(value, "schema", value)
            )
        if n is not None and value.num_rows != n:
            self.refuse(f"{name!r} of {n} rows", value.num_rows)
        return pa.RecordBatch.from_arrays(value.columns, schema=schema) if len(schema) else value

    def state(self, name: str) -> State:
        """A dict inside, for another reader."""
        value = self._take(name)
        if not isinstance(value, dict):
            self.refuse(f"{name!r} to be a dict", value)
        return value

    def part(self, name: str) -> Held:
        """A dict inside."""
        return Held(self._take(name), f"{self.where}, {name}")

    def parts(self, name: str, n: int) -> list[Held]:
        """A list of n dicts."""
        value = self._take(name)
        if not isinstance(value, list) or len(value) != n:
            self.refuse(f"{name!r} to be {n} parts", value)
        return [Held(each, f"{self.where}, {name} {i}") for i, each in enumerate(value)]

    def rest(self) -> State:
        """All that nobody has read."""
        left, self._left = self._left, set()
        return {name: value for name, value in self._state.items() if name in left}

    def end(self) -> None:
        """Nothing is left that nobody read."""
        if self._left:
            self.refuse("no more than is known", ", ".join(sorted(map(str, self._left))))

    def _take(self, name: str) -> Any:
        if name not in self._state:
            self.refuse(f"{name!r}", ", ".join(map(str, self._state)) or "nothing")
        self._left.discard(name)
        return self._state[name]


def all_of(kind: type, what: str) -> frozenset[str]:
    """What a class and those above it list under `HELD` or `DERIVED`."""
    return frozenset(name for each in kind.__mro__ for name in each.__dict__.get(what, ()))
