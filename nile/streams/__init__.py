"""From a source to a stream: rows read, put in the order of time, accounted for, handed on in batches.

Imports `nile.base` and `nile.expressions`.
"""
