"""The experiments of the atlas as TOML files: what is run, and what the paper claims."""
