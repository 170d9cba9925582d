"""What to do next: preference, fade, priority queue, admission, sampling, budget and clock.

Imports `pyramid` and `summaries`.
"""
