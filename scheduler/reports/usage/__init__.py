"""Usage: allocated hours, their cost, budgets, and the decayed usage of queues."""
