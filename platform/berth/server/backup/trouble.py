"""Error of a failed backup or restore."""


class BackupTrouble(Exception):
    """Backup or restore failed without changes; the message has the cause and a remedy."""
