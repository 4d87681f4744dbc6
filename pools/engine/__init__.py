"""Pure functions that decide the number of nodes and the steps towards it."""
