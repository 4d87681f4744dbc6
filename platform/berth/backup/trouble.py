"""Here is the one error of a backup or a restore that could not be made."""


class BackupTrouble(Exception):
    """Nothing was changed; the text says why and what helps."""
