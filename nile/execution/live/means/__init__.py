"""Standing queries that stay inside bounds of memory and CPU time: what is sampled, and what numbers are then worth.

Imports what `nile.execution.live` may.
"""
