"""The error of a failed backup or restore."""


class BackupTrouble(Exception):
    """Nothing was changed; the text says why and what helps."""
