"""Pure functions that decide how many nodes a pool needs and how to reach that number."""
