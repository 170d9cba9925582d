"""What to do next: preference, fade, priority queue, budget and clock.  Imports `pyramid` and `summaries`."""
