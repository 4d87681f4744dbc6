"""Report demand to the pools, and offer nodes back to them."""
