"""Window functions, and rows in order: over whole inputs, carried along, and how far they feel a change.

Imports the modules of `nile.execution` and what lies below.
"""
