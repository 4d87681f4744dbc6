"""Stop pods that have no database row, and clean up after finished pods and deleted workloads."""
