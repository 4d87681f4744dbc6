"""Back up a whole installation to one file, and restore it from that file."""
