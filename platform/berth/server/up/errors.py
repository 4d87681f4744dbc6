"""Error that prevents Berth from starting."""

UNUSABLE_DATABASE = 3  # exit code of the preparation step if Berth cannot use the database


class StartupError(Exception):
    """Raised if Berth failed to start. No process is left running. The message states a remedy."""
