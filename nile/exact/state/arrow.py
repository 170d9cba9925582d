"""pyarrow for the pipelines, loaded on first use: this wing may not reach `nile.summaries.lazy`."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

__all__ = ["Array", "Late", "in_place", "pa", "pc"]

Array = Any  # numpy.ndarray of any shape and dtype, as the signature beside it says


class Late(ModuleType):
    """Stands for a module and imports it when an attribute is first asked for."""

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(importlib.import_module(self.__name__), attribute)
        setattr(self, attribute, value)
        return value


pa: Any = Late("pyarrow")
pc: Any = Late("pyarrow.compute")


def in_place(numbers: Array, kind: Any) -> Any:
    """Numbers (contiguous, [n]) as an Arrow array without nulls, of a type as wide, in the same memory."""
    return pa.Array.from_buffers(kind, numbers.shape[0], [None, pa.py_buffer(numbers)])
