"""Storage for code that is submitted with workloads."""
