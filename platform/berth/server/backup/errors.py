"""Errors of backup and restore."""


class BackupError(Exception):
    """Raised if a backup or restore failed without changing anything.

    The message states the cause and a remedy.
    """
