"""What exact operators hold: rows by number, ordered values, exact sums, rows that wait to expire.

Imports the errors only.
"""
