"""Files as sources: Parquet, CSV, several of them, and what the names of their folders say."""
