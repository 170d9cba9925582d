"""A durable directory: immutable files, and a manifest in two generations that lists the valid ones.

Imports `summaries`.
"""

from __future__ import annotations

from nile.pyramid.disk.directory import StoreDirectory
from nile.pyramid.disk.files import Files, OpenFile
from nile.pyramid.disk.manifest import Generation, StoredFile
from nile.pyramid.disk.staging import StagedPath

__all__ = ["Files", "Generation", "OpenFile", "StagedPath", "StoreDirectory", "StoredFile"]
