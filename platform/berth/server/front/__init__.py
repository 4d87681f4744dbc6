"""HTTP server in front of Django, with limits on connections, request headers and request bodies."""
