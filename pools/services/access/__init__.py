"""Connect to the clusters of pools with the stored credentials."""
