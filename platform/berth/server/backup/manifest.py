"""Manifest of a backup. The manifest is read before all other contents."""

import hashlib
import hmac
import json
from dataclasses import asdict, dataclass, field
from typing import Any

from berth.server.backup.errors import BackupError

FORMAT = "berth.backup/1"
Migrations = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """Version and contents of a backup.

    `migrations` are those of the dumped tables. `key` is a fingerprint of the secret key. `server` is
    PostgreSQL's version, such as 180004 for 18.4.
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

    def to_dict(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "migrations": [list(migration) for migration in self.migrations],
            "files": list(self.files),
        }

    def text(self) -> bytes:
        return (json.dumps(self.to_dict(), indent=2) + "\n").encode()


def parse_manifest(text: bytes, name: str) -> Manifest:
    """Parse the output of `Manifest.text`. Raises BackupError if the text has a different format."""
    try:
        values = json.loads(text)
        if (kind := values.get("format")) != FORMAT:
            raise BackupError(
                f"{name} is in format {kind!r}, but this version of Berth reads only {FORMAT}. Restore the "
                "backup with the version of Berth that created it."
            )
        migrations = tuple((str(app), str(step)) for app, step in values.pop("migrations"))
        converted = {
            "server": int(values["server"]),
            "size": int(values["size"]),
            "files": tuple(values["files"]),
        }
        return Manifest(**{**values, **converted, "migrations": migrations})
    except (ValueError, TypeError, KeyError, AttributeError):
        raise BackupError(
            f"{name} is not a Berth backup: its manifest is unreadable. Use another file."
        ) from None


def secret_fingerprint(secret: str) -> str:
    """Return a fingerprint that identifies the secret without revealing it."""
    return hmac.new(secret.encode(), b"berth backup", hashlib.sha256).hexdigest()[:16]
