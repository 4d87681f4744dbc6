"""Here we decide how many nodes a pool should have and how to get there, from values to values."""
