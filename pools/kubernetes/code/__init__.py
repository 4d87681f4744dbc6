"""Copy the code of workloads into Kubernetes pods before their commands start."""
