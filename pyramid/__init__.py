"""Where cells live: `disk` (the one manifest), `grid` (zones and granularities), `lake`, `history`.

Imports `summaries`.
"""
