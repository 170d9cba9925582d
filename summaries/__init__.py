"""What one cell knows: the Summary ADT, sketches, key hashing, intervals, costs, errors.

Imports no other package of Nile.
"""
