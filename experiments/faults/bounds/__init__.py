"""Faults of what could grow without end: outputs that nobody reads, pairs of equal keys."""
