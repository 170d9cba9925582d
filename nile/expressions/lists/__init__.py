"""Lists: what functions of them compute, of which kinds, and how they are written.  A part of the room around it."""

from __future__ import annotations
