"""Foundation of everything that uses the database: queries, writes, loops, and the embedded server."""
