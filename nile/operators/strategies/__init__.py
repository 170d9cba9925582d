"""Strategies for a join within a CPU budget, each with a forecast.  Imports the operators and what lies below.

A cheap look at raw keys gives the statistics, a forecast prices every strategy, and the best one runs.
"""
