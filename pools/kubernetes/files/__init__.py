"""Copy the files of ended Kubernetes pods before the cluster deletes them."""
