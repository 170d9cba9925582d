"""Drawings and figures of the papers run again.  Imports `nile`."""
