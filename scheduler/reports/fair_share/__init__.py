"""Fair shares: table, trace and explanation."""
