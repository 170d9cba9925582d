"""The runner: configuration, workloads, demo.  Imports `nile`."""
