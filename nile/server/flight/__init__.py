"""Arrow Flight SQL over a server's database, for ADBC, JDBC and ODBC drivers.  Imports `nile.server`."""
