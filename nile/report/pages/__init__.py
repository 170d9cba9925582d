"""Figures as pages: markup, drawings, tables, prose.  Imports `nile.report`."""
