"""Files under names that Spark reads as they are.

Spark takes brackets, braces, stars and backslashes in a path for patterns, cannot open a file with a colon in
its name, and silently finds nothing in a file whose name begins with a dot or an underscore.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


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
