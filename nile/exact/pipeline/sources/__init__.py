"""The sources of a pipeline: windowed streams, joins of two of them, and stored relations.

Imports what `nile.exact.pipeline` may.
"""
