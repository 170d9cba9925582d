"""Standing queries over streaming DataFrames of Spark: the operators of a live database, one in each partition by key.

Imports Spark's session and schemas, and the live streams of `nile.execution`.
"""
