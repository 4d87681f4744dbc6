"""Report demand to the pools, and release nodes that they do not need."""
