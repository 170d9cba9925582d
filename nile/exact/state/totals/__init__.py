"""States behind aggregates that are fed by numbers: counts, exact sums and spreads.  Imports the rest of `state`."""
