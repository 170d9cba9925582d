"""`nile sql`: a shell that reads statements and shows tables."""

from nile.shell.session import Shell

__all__ = ["Shell"]
