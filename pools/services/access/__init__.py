"""Access of pools to their clusters, with the stored credentials."""
