"""Example applications, each a folder run by `python -m nile.experiments.examples.NAME`.  Imports `nile`."""
