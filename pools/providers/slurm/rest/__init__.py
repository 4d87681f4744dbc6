"""Control a Slurm cluster through slurmrestd, Slurm's REST API."""
