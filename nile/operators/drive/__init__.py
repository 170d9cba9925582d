"""What drives an operator: the wall clock, live streams, several standing queries on one budget.

Imports the operators.
"""
