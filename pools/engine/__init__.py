"""Pure functions that decide the size of a pool and the steps to reach it."""
