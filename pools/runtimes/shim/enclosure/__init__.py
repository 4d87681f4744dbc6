"""Build the enclosure that isolates a pod: its namespaces, mounts and shared memory."""
