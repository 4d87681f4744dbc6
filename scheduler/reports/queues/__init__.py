"""Queues of a pool: order, standings, pending times."""
