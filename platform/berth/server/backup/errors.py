"""Error raised when a backup or restore fails."""


class BackupError(Exception):
    """Error for a backup or restore that changed nothing. The message states cause and remedy."""
