"""Every figure of the papers as an experiment with a verdict.  Imports `nile.experiments.benchmarks` and `nile`."""
