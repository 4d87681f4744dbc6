"""Error that prevents Berth from starting."""


class StartupError(Exception):
    """Raised if Berth failed to start. No process is left running. The message states a remedy."""
