"""Commands that show the queue, the scheduler's decisions, and the cluster."""
