"""Heavy packages load on first use, so that `import nile` stays fast."""

from __future__ import annotations

import importlib
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
