"""Streams of the lake scanned by Spark, the most promising partitions first.  Imports `nile.execution`."""
