"""The catalogue of aggregates: their names, argument and result types, and how their calls are read from text.

`catalogue` imports nothing of Nile, so that the judges can read it too; `asked` imports `nile.expressions`.
"""
