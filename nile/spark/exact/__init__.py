"""Exact answers on Spark, the truth of the reports.

Like `nile.exact` it imports nothing of the lower floors but the errors.
"""
