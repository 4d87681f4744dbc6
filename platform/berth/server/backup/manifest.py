"""Manifest of a backup, which can be read before the backup's contents."""

import hashlib
import hmac
import json
from dataclasses import asdict, dataclass, field
from typing import Any

from berth.server.backup.trouble import BackupTrouble

FORMAT = "berth.backup/1"
Migrations = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """Version and contents of a backup.

    `migrations` have been applied to the dumped tables. `key` is a fingerprint of the secret key. `server` is
    PostgreSQL's version number: 180004 is 18.4.
    """

    made_at: str
    version: str
    server: int
    migrations: Migrations
    size: int
    sha256: str
    key: str
    counts: dict[str, int] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    format: str = FORMAT

    def plain(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "migrations": [list(each) for each in self.migrations],
            "files": list(self.files),
        }

    def text(self) -> bytes:
        return (json.dumps(self.plain(), indent=2) + "\n").encode()


def manifest_of(text: bytes, name: str) -> Manifest:
    """Parse the output of `Manifest.text`. Raises BackupTrouble for other or newer formats."""
    try:
        values = json.loads(text)
        if (kind := values.get("format")) != FORMAT:
            raise BackupTrouble(f"{name} is of the format {kind!r}; this version of Berth reads {FORMAT}")
        migrations = tuple((str(app), str(step)) for app, step in values.pop("migrations"))
        sure = {"server": int(values["server"]), "size": int(values["size"]), "files": tuple(values["files"])}
        return Manifest(**{**values, **sure, "migrations": migrations})
    except (ValueError, TypeError, KeyError, AttributeError):
        raise BackupTrouble(f"{name} is not a backup of Berth: its manifest is unreadable") from None


def mark_of(secret: str) -> str:
    """Return a fingerprint of the secret, which is too long to be guessed from the fingerprint."""
    return hmac.new(secret.encode(), b"berth backup", hashlib.sha256).hexdigest()[:16]
