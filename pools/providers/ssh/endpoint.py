"""Address and credentials of an SSH server, and connection errors.

Does not import asyncssh, which uses 34 MiB of memory.
"""

import base64
import binascii
import hashlib
import struct
from dataclasses import dataclass, field
from enum import StrEnum

PORT = 22
ASYNCSSH_MISSING = "asyncssh is not installed on Berth's machine. Run `pip install 'berth-platform[ssh]'`"


class SshErrorKind(StrEnum):
    UNREACHABLE = "unreachable"  # the connection failed or was lost
    TIMEOUT = "timeout"  # the server accepted the connection or the command, but did not respond in time
    HOST_KEY = "host_key"  # the server presented a key other than the pinned one
    LOGIN = "login"  # the server rejected the user or the key
    KEY = "key"  # the private key cannot be used
    COMMAND = "command"  # the command failed
    UNSUITABLE = "unsuitable"  # the host does not meet Berth's requirements


class SshError(Exception):
    """Raised if an SSH connection or command fails.

    `presented` is the server's key if it differs from the pinned one.
    """

    def __init__(self, kind: SshErrorKind, message: str, presented: str = "") -> None:
        super().__init__(message)
        self.kind, self.message, self.presented = kind, message, presented


@dataclass(frozen=True, slots=True)
class Endpoint:
    """SSH server, with the user and the private key to log in.

    `host_key` is the pinned public key, as in `ssh-ed25519 AAAA...`. Berth never connects without one. The
    connection goes through `bastion`, if there is one.
    """

    address: str
    user: str
    private_key: str = field(repr=False)
    host_key: str
    port: int = PORT
    bastion: "Endpoint | None" = None

    @property
    def name(self) -> str:
        return self.address if self.port == PORT else f"{self.address} port {self.port}"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits in seconds.

    `connect` applies to the whole connection, including bastions. `command` is the default for commands.
    """

    connect: float = 20.0
    command: float = 60.0


def normalize_host_key(text: str) -> str:
    """Return a public key without its comment. Raises ValueError with the reason if the key is invalid."""
    fields = text.split()
    if len(fields) < 2:
        raise ValueError("is not a valid public key")
    algorithm, encoded = fields[:2]
    try:
        blob = base64.b64decode(encoded, validate=True)
        (length,) = struct.unpack(">I", blob[:4])
        named = blob[4 : 4 + length].decode("ascii")
    except (binascii.Error, struct.error, UnicodeDecodeError):
        raise ValueError("is not a valid public key") from None
    if named != algorithm or len(blob) <= 4 + length:
        raise ValueError("is not a complete public key")
    return f"{algorithm} {encoded}"


def fingerprint(host_key: str) -> str:
    """Return a public key's fingerprint in OpenSSH's format, with the key's algorithm."""
    algorithm, encoded = host_key.split()[:2]
    digest = hashlib.sha256(base64.b64decode(encoded)).digest()
    return f"{algorithm.removeprefix('ssh-')} SHA256:{base64.b64encode(digest).decode().rstrip('=')}"
