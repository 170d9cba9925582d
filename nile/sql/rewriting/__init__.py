"""Rewriting: a bound query becomes cheaper but equivalent, by pure functions."""
