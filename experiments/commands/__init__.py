"""The commands of `nile` that have options of their own.  Imports `nile`."""
