"""Copy and follow the logs of Kubernetes pods."""
