"""Back up an entire installation to one file, and restore it from that file."""
