"""Where Nile's own code lies, and its files: what kernels, executors and the atlas name their caches after.

In the repository four packages lie beside `nile`, which reaches them by links; installed, all lie inside it.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["CONSTANTS", "NILE", "files_below", "is_compiled_in", "kernel_key"]

NILE = Path(os.path.abspath(__file__)).parents[1]
"""The folder of the package `nile`; links in it are kept as they are."""
CONSTANTS = ("arrays.py", "state.py")
"""Where the numbers that kernels have compiled in are named."""
_IMPORT = re.compile(r"^from (nile[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
_NAME = re.compile(r"(\w+)(?: as \w+)?")


def files_below(folder: Path) -> Iterator[Path]:
    """Every file below `folder`, through links too, in the order of their relative paths; no compiled ones."""
    found = (Path(at, name) for at, _, names in os.walk(folder, followlinks=True) for name in names)
    kept = (path for path in found if "__pycache__" not in path.parts)
    yield from sorted(kept, key=lambda path: path.relative_to(folder).parts)


def is_compiled_in(path: Path) -> bool:
    """Whether kernels have the whole of a module compiled in: it defines kernels, or the places in their arrays."""
    return path.name.endswith("kernels.py") or path.name in CONSTANTS


@functools.cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@functools.cache
def _imports(path: Path, package: Path) -> tuple[tuple[Path, str], ...]:
    """(module of the package, the name taken of it, "" for the module itself) of each import of a module's."""
    found: list[tuple[Path, str]] = []
    for module, names in _IMPORT.findall(_text(path)):
        folder = package.joinpath(*module.split(".")[1:])
        for name in _NAME.findall(re.sub(r"#[^\n]*", "", names)):
            inner, own = folder / f"{name}.py", folder.with_suffix(".py")
            if inner.exists():
                found.append((inner, ""))
            elif own.exists():
                found.append((own, name))
    return tuple(found)


def _constant(path: Path, name: str) -> str:
    """The line that gives a constant its value; the whole module, where there is no such line."""
    text = _text(path)
    line = re.search(rf"^{name}\b[^=\n]*=.*[^\[({{\s]\s*$", text, re.MULTILINE) if name.isupper() else None
    return text if line is None else line[0]


@functools.cache
def kernel_key(path: Path, package: Path) -> str:
    """A digest of all that kernels of the module at `path` have compiled in.  package: the folder of `nile`.

    Modules of kernels and of state arrays count whole, with what they import; of others the constants that are
    taken from them.
    """
    parts: dict[str, str] = {}
    waiting = [path]
    while waiting:
        module = waiting.pop()
        called = module.relative_to(package).as_posix()
        if called in parts:
            continue
        parts[called] = _text(module)
        for other, name in _imports(module, package):
            if is_compiled_in(other):
                waiting.append(other)
            elif name:
                parts[f"{other.relative_to(package).as_posix()} {name}"] = _constant(other, name)
    digest = hashlib.blake2b(digest_size=8)
    for called in sorted(parts):
        digest.update(f"{called}\0{parts[called]}\0".encode())
    return digest.hexdigest()
