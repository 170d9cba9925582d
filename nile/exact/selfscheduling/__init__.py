"""Self-scheduling operators: each pulls from those below, and hands up NULL when all its sources have nothing yet.

Every stream has a queue of its own, and nothing orders tuples of different streams.  Imports `nile.exact.state` and
`nile.exact.join`.  Source: STEAM, section 6.1.
"""
