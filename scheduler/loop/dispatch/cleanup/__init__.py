"""Stop pods that have no database row, and clean up after ended pods and deleted workloads."""
