"""Worker that runs session functions on nodes, without any server code."""
