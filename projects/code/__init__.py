"""Storage of the code that is sent with workloads."""
