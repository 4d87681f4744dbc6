"""Fair shares: table, trace and explanations."""
