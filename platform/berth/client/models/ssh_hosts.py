# Generated from the OpenAPI document by `python -m berth.client.generate`; do not edit.
"""Response models for SSH hosts."""

from datetime import datetime
from typing import Any

from berth.client.models.base import Model


class SshHost(Model):
    name: str
    address: str = ""
    port: int = 0
    user: str = ""
    bastion: str | None = None
    """Address of the server through which the host is reached."""
    state: str = ""
    """`unverified`: its key has not been accepted; `pending`: not connected yet; `silent`: its agent no
    longer reports; `failing`: the last attempt failed, see `message`; `removing`: its node is drained,
    then the agent is uninstalled."""
    problem: str | None = None
    """Kind of the problem: unreachable, timeout, host_key, login, key, command or unsuitable."""
    message: str = ""
    host_key: str | None = None
    """Pinned public key."""
    fingerprint: str | None = None
    presented_key: str | None = None
    """Public key that the host presented and that is not pinned."""
    presented_fingerprint: str | None = None
    failures: int = 0
    """Consecutive failed connections."""
    connected_at: datetime | None = None
    """Time of the last SSH connection."""
    retry_at: datetime | None = None
    last_seen_at: datetime | None = None
    """Time of the last report of the host's agent."""
    facts: dict[str, Any] = {}
    """Properties of the host as detected by the last installation."""
