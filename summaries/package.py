"""Where Nile's own code lies, and its files: what kernels, executors and the atlas name their caches after.

In the repository four packages lie beside `nile`, which reaches them by links; installed, all lie inside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["NILE", "files_below"]

NILE = Path(os.path.abspath(__file__)).parents[1]
"""The folder of the package `nile`; links in it are kept as they are."""


def files_below(folder: Path) -> Iterator[Path]:
    """Every file below `folder`, through links too, in the order of their relative paths; no compiled ones."""
    found = (Path(at, name) for at, _, names in os.walk(folder, followlinks=True) for name in names)
    kept = (path for path in found if "__pycache__" not in path.parts)
    yield from sorted(kept, key=lambda path: path.relative_to(folder).parts)
