"""Paths that Spark can read as they are, and directories that it may replace.

Spark takes brackets, braces, stars and backslashes in a path for patterns, cannot open a file with a colon in
its name, and silently finds nothing in a file whose name begins with a dot or an underscore.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nile.summaries.errors import ConfigError


@contextmanager
def plain_links(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Symbolic links to `paths` with harmless names, numbered in order, for as long as inside.

    A link keeps the last suffix of its file.  Where links cannot be made (Windows without the right to) the
    paths themselves are given.
    """
    with tempfile.TemporaryDirectory(prefix="nile-links-") as directory:
        links = []
        for number, path in enumerate(paths):
            link = Path(directory) / f"{number:06}{path.suffix}"
            try:
                link.symlink_to(path.resolve())
            except OSError:
                links.append(path)
            else:
                links.append(link)
        yield links


def check_output(out: Path, where: str, inputs: Sequence[Path]) -> None:
    """Raises ConfigError unless `out` is free, or a directory that Spark wrote and that is none of `inputs`.

    Spark empties a directory before it writes; nothing of a user's may be in it.
    """
    if out.resolve() in [path.resolve() for path in inputs]:
        raise ConfigError(f"{where}: {out} is also read; name another directory to write to")
    if not out.exists():
        return
    if not out.is_dir():
        raise ConfigError(f"{where}: needed a directory to write to, {out} is a file; name another")
    foreign = sorted(entry.name for entry in out.iterdir() if not entry.name.startswith(("part-", "_", ".")))
    if foreign:
        raise ConfigError(
            f"{where}: {out} is a directory with other things in it ('{foreign[0]}'), which writing would remove; "
            "name another"
        )
