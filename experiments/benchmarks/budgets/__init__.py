"""What budgets cost on the real clock, what is found within them, and what others find in the same time.

Imports `nile`.
"""
