"""What a stream keeps beyond memory: its rows in order, and key indices that say which of them to read."""
