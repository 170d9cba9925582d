"""Nile's version, and the name of its distribution."""

__version__ = "0.1.0"
DISTRIBUTION = "nile-streams"
"""`nile` alone belongs to something else on the package index."""
