"""HTTP server in front of Django, with limits on connections, request heads and request bodies."""
