"""The database that users work with, opening it, and `nile doctor`.  Imports every room below it."""
