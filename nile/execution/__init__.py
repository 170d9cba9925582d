"""From a bound query to an operator to a result: options, reading, expressions as callables.

Imports `nile.answers` and what lies below.
"""
