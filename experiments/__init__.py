"""The `nile` command and all that measures: runs, figures, benchmarks, the atlas, faults.  Imports every floor."""
