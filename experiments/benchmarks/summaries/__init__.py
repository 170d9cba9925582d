"""What summaries cost, and what they bring.  Imports `nile`."""
