"""Where a pipeline's rows come from: streams in their windows, joins of two of them at once, and stored relations.

May import what nile/exact/pipeline may.
"""
