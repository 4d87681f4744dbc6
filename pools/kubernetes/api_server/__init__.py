"""Send requests to a cluster's API server: credentials, connections and rate limit."""
