"""Which kind of summary the zones of a grid hold, and how large: as asked for, or as the data ask for.

The kind `auto` is exact counts while they take no more room than what was asked for needs, else the grid's own count
sketches: for an error those as wide as the data ask for, of which exact counts are the better where keys are few; for
an amount of memory as many columns as fit, where exact counts do not.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from nile.pyramid.grid.cells import CellManager
from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.sizing import concentration_of, for_error, for_memory, outgrown
from nile.pyramid.grid.spec import SummarySpec
from nile.summaries.catalogue import CATALOGUE, make_summary
from nile.summaries.errors import ConfigError, MemoryRefused
from nile.summaries.exact import ExactCounter
from nile.summaries.hashing import KeyTable

__all__ = ["AUTO", "KINDS", "Asked"]

Array = np.ndarray[Any, Any]
AUTO = "auto"
_OWN = "countsketch"
KINDS = (_OWN, "countmin", "exact", "histogram", "wavelet", "reservoir", "kll", AUTO)
"""What `USING` may name; all but the last are of the catalogue."""
_KEY = 16
_HEADROOM = 2.0
_ROWS = 3
_KLL = 2.2
"""k times the share of the tuples that KLL's counts of ranges may be off by, 95 times of a hundred (measured: 2.1)."""
_LN = math.log(2.0 / 0.05)
Value = str | float | int | bool


def _by_columns(error: float) -> dict[str, Any]:
    """Of count-min and the wavelet, whose counts are too high by at most e / (2 * columns) of the tuples."""
    return {"columns": 1 << max(0, math.ceil(math.log2(math.e / (2.0 * error))))}


_FOR_ERROR: Mapping[str, Any] = MappingProxyType(
    {
        "countmin": _by_columns,
        "wavelet": _by_columns,
        "exact": lambda error: {},  # noqa: ARG005
        "reservoir": lambda error: {"capacity": math.ceil(_LN / (2.0 * error**2))},
        "kll": lambda error: {"k": max(8, math.ceil(_KLL / error))},
    }
)
"""The parameter of each kind by the error that a count may have, as a share of its zone's tuples."""
_FOR_BYTES: Mapping[str, Any] = MappingProxyType(
    {
        "countmin": lambda n, own: {
            "columns": _power(n // (16 * own.get("rows", _ROWS))),
            "rows": own.get("rows", _ROWS),
        },
        "wavelet": lambda n, own: {"columns": _power(n // (16 * own.get("bits", 16) * own.get("rows", _ROWS)))},
        "reservoir": lambda n, own: {"capacity": n // 16},  # noqa: ARG005
        "kll": lambda n, own: {"k": n // 40},  # noqa: ARG005
    }
)
"""The parameter of each kind by the bytes that a zone's summary may take."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What CREATE SUMMARY asks of a grid, whatever data may come.

    spec: zones, granularities and count sketches; kind, options: of the summaries in zones, by the catalogue; error:
    of a count, as a share of the tuples; memory: bytes.  Raises ConfigError, MemoryRefused for what cannot be.
    """

    spec: SummarySpec
    kind: str = _OWN
    options: tuple[tuple[str, Value], ...] = ()
    error: float | None = None
    memory: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"summary: needed USING one of {', '.join(KINDS)}; got {self.kind!r}")
        if self.kind == AUTO and self.error is None and self.memory is None:
            raise ConfigError("summary: needed WITH ERROR or WITH MEMORY for USING auto, to choose by; got neither")
        if self.kind in (AUTO, _OWN) and self.options:
            raise ConfigError(f"summary, USING {self.kind}: needed no parameters; got {self.options[0][0]}")
        self._cell()

    @property
    def follows(self) -> bool:
        """Whether the shape follows the data."""
        return self.kind == AUTO or (self.kind == _OWN and self.error is not None)

    def begun(self, keys: KeyTable) -> SummaryManager:
        """A grid of which it is not known yet what will come: the smallest that may do."""
        if self.kind == AUTO:
            return CellManager(self.spec, keys, ExactCounter())
        if self.kind == _OWN:
            return SummaryManager(self.spec if self.error is None else for_error(self.spec, self.error, 0.0), keys)
        return self._of_cells(keys)

    def of(self, keys: KeyTable, codes: Array) -> SummaryManager:
        """A grid for tuples of these key codes (int32 [n], -1 null), all that there are."""
        if self.kind == AUTO:
            distinct = int(np.unique(codes[codes >= 0]).shape[0])
            sketches = self._sketches(concentration_of(codes))
            if sketches is None or _KEY * distinct * _zones(self.spec) <= self._limit(sketches):
                return CellManager(self.spec, keys, ExactCounter())
            return SummaryManager(sketches, keys)
        if self.kind == _OWN:
            spec = self.spec
            return SummaryManager(
                spec if self.error is None else for_error(spec, self.error, concentration_of(codes)), keys
            )
        return self._of_cells(keys)

    def again(self, manager: SummaryManager, keys: KeyTable) -> SummaryManager | None:
        """An empty grid of another shape, which data that no longer fit `manager` ask for; None while they do."""
        if not self.follows:
            return None
        if not isinstance(manager, CellManager):
            wider = None if self.error is None else outgrown(manager, self.error)
            return None if wider is None else SummaryManager(wider, keys)
        held = sum(cell.nbytes for cell in manager.cells.values())
        least = self._sketches(0.0)
        if least is None or held <= self._limit(least):
            return None
        told = ExactCounter()
        for cell in manager.cells.values():
            told.add(cell)
        counts = told.counts.astype(np.float64)
        sketches = self._sketches(min(1.0, _HEADROOM * float((counts**2).sum()) / max(float(counts.sum()), 1.0) ** 2))
        if sketches is None or held <= self._limit(sketches):
            return None
        return SummaryManager(sketches, keys)

    def like(self, manager: SummaryManager, keys: KeyTable) -> SummaryManager:
        """An empty grid of the shape of `manager`."""
        if isinstance(manager, CellManager):
            return CellManager(manager.spec, keys, ExactCounter()) if self.kind == AUTO else self._of_cells(keys)
        return SummaryManager(manager.spec, keys)

    def _of_cells(self, keys: KeyTable) -> CellManager:
        cell = self._cell()
        assert cell is not None
        return CellManager(self.spec, keys, cell)

    def _cell(self) -> Any:
        """An empty summary as zones hold them; None of the grid's own count sketches."""
        if self.kind in (AUTO, _OWN):
            return None
        options = dict(self.options)
        chosen: dict[str, Any] = {}
        if self.error is not None:
            if self.kind not in _FOR_ERROR:
                raise ConfigError(
                    f"summary, USING {self.kind}: needed its parameters, since the error of a count depends on the "
                    "data alone; got WITH ERROR; say bits, or USING another kind"
                )
            chosen = _FOR_ERROR[self.kind](self.error)
        elif self.memory is not None:
            if self.kind not in _FOR_BYTES:
                raise ConfigError(
                    f"summary, USING {self.kind}: needed a kind whose size does not depend on the data; "
                    f"got WITH MEMORY; USING {', '.join(_FOR_BYTES)}, or auto"
                )
            chosen = _FOR_BYTES[self.kind](self.memory // _zones(self.spec), options)
        if given := set(chosen) & set(options) - {"rows"}:
            raise ConfigError(
                f"summary: needed WITH ERROR or WITH MEMORY, which choose {given.pop()}, or that; got both"
            )
        known = inspect.signature(CATALOGUE[self.kind]).parameters
        seed = {"seed": self.spec.seed} if "seed" in known and self.spec.seed and "seed" not in options else {}
        return make_summary(self.kind, **{**seed, **chosen, **options})

    def _sketches(self, concentration: float) -> SummarySpec | None:
        """The count sketches that would do for data so concentrated; None where none could."""
        try:
            if self.error is not None:
                return for_error(self.spec, self.error, concentration)
            return for_memory(replace(self.spec, columns=1), self.memory or 0)
        except (ConfigError, MemoryRefused):
            return None

    def _limit(self, sketches: SummarySpec) -> int:
        """The bytes up to which exact counts are taken."""
        return 8 * sketches.counters if self.error is not None else int(self.memory or 0)


def _zones(spec: SummarySpec) -> int:
    """How many zones a grid may have at once."""
    return spec.max_zones + 1 + spec.rate * (spec.depth - 1)


def _power(n: int) -> int:
    """The largest power of two up to n; 0 is refused by whoever takes it."""
    return 1 << n.bit_length() - 1 if n > 0 else 0
