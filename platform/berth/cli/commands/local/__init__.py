"""Commands that run on the local machine without a server."""
