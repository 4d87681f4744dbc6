"""Code of workloads on Kubernetes: Berth copies it into each pod before the pod's command starts."""
