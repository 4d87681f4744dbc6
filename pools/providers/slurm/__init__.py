"""Provider whose nodes are jobs of a Slurm cluster."""
