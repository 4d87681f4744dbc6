"""Error that prevents Berth from starting."""


class StartupError(Exception):
    """Raised for a failed start, which leaves no process running. The message states a remedy."""
