"""Files of ended pods on Kubernetes, which Berth copies before the cluster deletes them."""
