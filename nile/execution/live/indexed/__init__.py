"""Many selections over one live stream: an index of their conditions, and one sorted batch that all are handed rows of.

Imports what `nile.execution.live` may.
"""
