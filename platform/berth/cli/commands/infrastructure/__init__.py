"""Commands for node pools, nodes and machines."""
