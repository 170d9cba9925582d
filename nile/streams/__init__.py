"""From a source to a stream: rows are read, ordered by time, accounted for, and passed on in batches.

Imports `nile.expressions`, `nile.exact` and the pyramid.
"""
