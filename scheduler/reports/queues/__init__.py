"""Queues of a pool: order, standings and pending times."""
