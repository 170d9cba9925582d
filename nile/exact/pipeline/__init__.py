"""Pipelined sliding-window plans over signed tuples, under three schedules.

Imports `nile.exact.plan`, `nile.exact.state` and `nile.exact.join`.
"""
