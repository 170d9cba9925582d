"""How accurate answers are, as benchmarks.  Imports `nile`."""
