"""Checkpoints: what makes a database outlive its process.  Imports `nile.execution` and the pyramid."""
