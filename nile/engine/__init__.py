"""The database a user talks to, opening it, and `nile doctor`.  Imports every room but the shell."""
