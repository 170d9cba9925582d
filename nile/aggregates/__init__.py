"""Aggregates: which there are, what they take and give, and how one is asked for as text.

`catalogue` imports nothing of Nile, so that the judges read it too; `asked` imports `nile.base` and
`nile.expressions`.
"""
