"""What the operators share: plan, state, and the kernels of arrival, admission and sampling.

Imports the floors below and no other room of the operators.
"""
