"""Pure functions that decide a pool's size and the steps to reach it."""
