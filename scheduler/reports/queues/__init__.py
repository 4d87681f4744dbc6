"""A pool's queues: order, statuses and pending times."""
