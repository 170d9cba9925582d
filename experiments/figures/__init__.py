"""Drawings, and reruns of the papers' figures.  Imports `nile`."""
