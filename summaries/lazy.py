"""Heavy packages load on first use, so that `import nile` stays fast."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any


class LazyModule(ModuleType):
    """Stands for a module and imports it when an attribute is first asked for."""

    def __getattr__(self, attribute: str) -> Any:
        module = importlib.import_module(self.__name__)
        value = getattr(module, attribute)
        setattr(self, attribute, value)
        return value


def lazy(name: str) -> Any:
    """A stand-in for module `name`. Costs nothing until an attribute of it is used."""
    return LazyModule(name)


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose names load on first use.  homes: the module of each name."""

    def found(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home), name)
        setattr(sys.modules[package], name, value)
        return value

    return found
