"""Access of pools to clusters, with the credentials that are stored for them."""
