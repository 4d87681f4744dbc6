"""Start, fork, restart and stop processes, and adopt orphans."""
