"""The catalogue of aggregates: their names, argument and result types, and how their calls are read from text.

`catalogue` and `results` import nothing of Nile but the loader of heavy packages, so that the judges can read them too;
`asked` imports `nile.expressions`.
"""
