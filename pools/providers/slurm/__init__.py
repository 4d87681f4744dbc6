"""Nodes in allocations of a Slurm cluster."""
