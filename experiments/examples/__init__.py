"""Applications, each a folder that `python -m nile.experiments.examples.NAME` runs.  Imports the engine."""
