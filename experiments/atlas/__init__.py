"""Every figure of the papers as an experiment with a verdict.  Imports `experiments.benchmarks` and `nile`."""
