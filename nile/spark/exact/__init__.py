"""Exact answers on Spark, the ground truth of reports.

Like `nile.exact` it imports nothing of the lower floors but the errors.
"""
