"""Parse workload documents and older manifests, and report their problems."""
