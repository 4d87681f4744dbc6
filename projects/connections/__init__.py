"""Long-lived connections. A connection ends soon after its user loses the permission to read from it."""
