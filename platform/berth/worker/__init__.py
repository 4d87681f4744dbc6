"""Worker that runs a session's functions on its nodes, without any server code."""
