"""Faults of changes that have to be whole: callbacks that misbehave, and what flows from one stream into another."""
