"""Arrow Flight SQL over the database of a server: what ADBC, JDBC and ODBC drivers speak.  May import the server."""
