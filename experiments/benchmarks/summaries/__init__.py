"""What summaries cost, and what they gain.  Imports `nile`."""
