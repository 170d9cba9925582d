"""Finding the file that a source names, with a clear message when it is not one."""

from __future__ import annotations

import gzip
import zlib
from difflib import get_close_matches
from pathlib import Path
from typing import BinaryIO, cast

from nile.summaries.errors import SourceError, SourceMissing

TORN = (gzip.BadGzipFile, EOFError, zlib.error)
"""What a packed file raises that is none, or is cut short."""


def opened(path: Path, kind: str) -> BinaryIO:
    """The file, unpacked where its name ends in .gz.  Raises SourceMissing."""
    try:
        return cast("BinaryIO", gzip.open(path, "rb")) if path.suffix.lower() == ".gz" else path.open("rb")
    except FileNotFoundError:
        raise SourceMissing(f"{path}: needed a {kind}, there is nothing of that name any more") from None


def existing_file(path: str | Path, kind: str) -> Path:
    """`path` as a readable regular file. Raises SourceMissing, or SourceError for anything else."""
    file = existing_path(path, kind)
    if file.is_dir():
        raise SourceError(f"{path}: needed a {kind}, got a directory; name a file in it")
    if not file.is_file():  # opening a pipe would wait for a writer
        raise SourceError(f"{path}: needed a {kind}, got something that is not a regular file; copy it to one")
    try:
        with file.open("rb"):
            pass
    except OSError as error:
        raise SourceError(f"{path}: needed a {kind} that can be read; got: {error.strerror}") from None
    return file


def existing_path(path: str | Path, kind: str) -> Path:
    """`path`, with ~ expanded, if something is there. Raises SourceMissing with the nearest name."""
    found = Path(path).expanduser()
    try:
        if found.exists():
            return found
        siblings = [child.name for child in found.parent.iterdir()] if found.parent.is_dir() else []
    except OSError as error:
        raise SourceError(f"{path}: needed a {kind} that can be reached; got: {error.strerror}") from None
    near = get_close_matches(found.name, siblings, n=1)
    hint = f"did you mean '{near[0]}'?" if near else "check the path"
    raise SourceMissing(f"{path}: needed a {kind}, there is nothing of that name; {hint}")
