"""The HTTP server in front of Django: limits on connections, request heads and request bodies."""
