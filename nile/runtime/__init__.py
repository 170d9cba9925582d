"""What the runtime goes by: constraints measured on streams, the order in which operators run.

May import `nile.base`, `nile.exact` and the summaries' errors.
"""
