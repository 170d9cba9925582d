"""Parquet parts and the sketches beside them.  Imports `summaries`."""
