"""Nile's own code on the executors: an executor has Python, numpy, numba, pyarrow, and whatever a session brings.

The package travels as an archive that Spark unpacks under its name in the directory where a task's imports begin.
Unpacked, not imported from the archive: kernels are compiled from files, and are kept compiled by what these files
say.
"""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from nile.spark.java import cache_directory
from nile.spark.masters import is_connect, runs_here
from nile.summaries.errors import StoreWriteError
from nile.summaries.package import NILE, files_below

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["archive", "archive_of", "ship"]

_BEGAN = (1980, 1, 1, 0, 0, 0)  # the oldest time an archive can say: the same files, the same bytes
_shipped: set[str] = set()


def ship(session: SparkSession) -> None:
    """Brings Nile's code to the executors of `session`, once; one whose executors are this process needs none.

    Cost: 0.3 s the first time in a process (3 MB read, packed and looked up in the user's cache directory).
    """
    number = _number(session)
    if number is None or number in _shipped:
        return
    session.addArtifacts(f"{archive()}#nile", archive=True)
    _shipped.add(number)


def _number(session: SparkSession) -> str | None:
    """What tells a session from others; None where its tasks run beside this process, with its packages."""
    if is_connect(session):
        return str(session.session_id)
    context = session.sparkContext
    return None if runs_here(context.master) else str(context.applicationId)


@cache
def archive() -> Path:
    """The archive of Nile's code, in the user's cache directory under a name made of its content."""
    return _kept("nile", archive_of(NILE))


def archive_of(package: Path) -> bytes:
    """A package as a zip: every file but compiled ones, in order; the same files give the same bytes."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files_below(package):
            one = zipfile.ZipInfo(path.relative_to(package).as_posix(), _BEGAN)
            one.compress_type = zipfile.ZIP_DEFLATED
            one.external_attr = 0o644 << 16
            archive.writestr(one, path.read_bytes())
    return made.getvalue()


def _kept(name: str, content: bytes) -> Path:
    file = cache_directory() / "code" / f"{name}-{hashlib.blake2b(content, digest_size=8).hexdigest()}.zip"
    if file.is_file() and file.stat().st_size == len(content):
        return file
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=file.parent)
        with os.fdopen(handle, "wb") as out:
            out.write(content)
        os.replace(draft, file)
    except OSError as error:
        raise StoreWriteError(
            f"Spark session: {file}: needed to write Nile's code for the executors; got: {error}; set XDG_CACHE_HOME "
            "to a directory with room"
        ) from None
    return file
