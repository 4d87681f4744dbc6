"""Back up the whole installation into one file, and restore it."""
