# Generated from the OpenAPI document by `python -m berth.client.generate`; do not edit.
"""Response models for notifications."""

from datetime import datetime

from berth.client.models.base import Model


class Delivery(Model):
    id: int
    at: datetime
    kind: str = ""
    to: str = ""
    channel: str = ""
    state: str = ""
    attempts: int = 0
    next_attempt_at: datetime
    last_error: str = ""
    ended_at: datetime | None = None


class Subscription(Model):
    id: int
    scope: str = ""
    """Subscribed scope, as text."""
    project: str | None = None
    department: str | None = None
    user: str | None = None
    events: list[str] = []
    pending_minutes: int = 0
    to: str = ""
    """Address. A secret webhook shows only its host and last characters."""
    channel: str = ""
    created_by: str = ""
    created_at: datetime
