"""Which Nile this is, and the name under which it is installed."""

__version__ = "0.1.0"
DISTRIBUTION = "nile-streams"
"""`nile` alone belongs to something else on the package index."""
