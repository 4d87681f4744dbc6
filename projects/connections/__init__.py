"""Long-lived connections. Each connection ends soon after its user loses permission to read from it."""
