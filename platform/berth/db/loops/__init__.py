"""Loops of background processes: leader election, waiting for work, and wake-ups."""
