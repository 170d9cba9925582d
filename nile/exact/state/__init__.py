"""The state of exact operators: numbered rows, ordered values, exact sums, rows waiting to expire.

Imports the errors only.
"""
