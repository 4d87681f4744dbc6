"""Files of ended Kubernetes pods, which Berth copies before the cluster deletes them."""
