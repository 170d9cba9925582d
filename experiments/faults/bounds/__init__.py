"""Faults of unbounded growth: outputs that nobody reads, pairs of equal keys."""
