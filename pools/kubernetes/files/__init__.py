"""Copy the files of finished Kubernetes pods before the cluster deletes them."""
