"""Loops of background processes: the lease that elects a leader, waiting for work, and waking up."""
