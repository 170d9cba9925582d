"""`nile sql`: a shell that reads statements and prints tables.  Imports `nile.engine` and what lies below."""

from nile.shell.session import Shell

__all__ = ["Shell"]
