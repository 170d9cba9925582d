"""Faults of changes that have to be atomic: misbehaving callbacks, and queries that fill other streams."""
