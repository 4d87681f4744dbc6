"""Report on pending workloads: whether they can start, and which changes would let them start."""
