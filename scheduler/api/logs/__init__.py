"""REST endpoints and live stream of pod logs."""
