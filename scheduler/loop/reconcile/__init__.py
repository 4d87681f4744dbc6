"""Report demand to the pools, and release nodes that the pools do not need."""
