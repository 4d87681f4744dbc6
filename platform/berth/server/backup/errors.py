"""Errors raised by backup and restore."""


class BackupError(Exception):
    """Raised if a backup or restore failed without making changes.

    The message states the cause and a remedy.
    """
