"""The manifest of a backup, readable before its contents."""

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
    """`migrations` are those of the tables inside; `key` tells secret keys apart, not which one it is.
    `server` is PostgreSQL's number of the server's version: 180004 is 18.4."""

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
    """What was written by `Manifest.text`; a file of another kind or a later format is refused."""
    try:
        values = json.loads(text)
        if (found := values.get("format")) != FORMAT:
            raise BackupTrouble(f"{name} is of the format {found!r}; this version of Berth reads {FORMAT}")
        migrations = tuple((str(app), str(step)) for app, step in values.pop("migrations"))
        sure = {"server": int(values["server"]), "size": int(values["size"]), "files": tuple(values["files"])}
        return Manifest(**{**values, **sure, "migrations": migrations})
    except (ValueError, TypeError, KeyError, AttributeError):
        raise BackupTrouble(f"{name} is no backup of Berth: it does not say what is in it") from None


def mark_of(secret: str) -> str:
    """The same for the same secret, and of no use to find it: the key is 50 random letters."""
    return hmac.new(secret.encode(), b"berth backup", hashlib.sha256).hexdigest()[:16]
