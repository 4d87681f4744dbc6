"""WebSocket that runs a command in a pod."""
