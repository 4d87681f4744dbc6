"""Queues of a pool: order, statuses and pending times."""
