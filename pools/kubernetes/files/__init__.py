"""Files of ended pods on Kubernetes: Berth copies them before the cluster deletes them with the pod."""
