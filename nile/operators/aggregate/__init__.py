"""Aggregates under a budget: cells in full, edges sampled, and what the numbers are worth.  Imports `common`."""
