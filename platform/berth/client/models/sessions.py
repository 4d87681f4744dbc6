# Generated from the OpenAPI document by `python -m berth.client.generate`; do not edit.
"""Response models for sessions."""

from datetime import datetime

from berth.client.models.base import Model
from berth.client.models.mixins import SessionStateMixin


class SessionNode(Model):
    """Session node that accepts calls."""

    node: int = 0
    pod: str = ""
    pool: str = ""
    python: str = ""
    joined_at: datetime


class SessionState(SessionStateMixin, Model):
    id: str
    name: str
    project: str = ""
    phase: str = ""
    reason: str = ""
    message: str = ""
    error: str = ""
    run: int = 0
    executor: str = ""
    slots: int = 0
    max_attempts: int = 0
    idle_timeout: int = 0
    call_bytes_max: int = 0
    nodes: list[SessionNode] = []
    """The nodes that accept calls."""
    ended: int = 0
    """Number of calls that have ended."""
