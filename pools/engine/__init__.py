"""Pure functions that decide the size of pools and the steps towards it."""
