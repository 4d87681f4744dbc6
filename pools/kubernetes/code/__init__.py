"""Code of workloads on Kubernetes, which Berth copies into each pod before its command starts."""
