"""Notification subscriptions and deliveries."""

from datetime import datetime

from berth.client.models.base import Model


class Subscription(Model):
    id: int
    scope: str
    events: list[str] = []
    to: str = ""
    channel: str = ""
    pending_minutes: int = 60
    created_by: str = ""
    created_at: datetime | None = None


class Delivery(Model):
    id: int
    at: datetime
    kind: str = ""
    to: str = ""
    channel: str = ""
    state: str = ""
    attempts: int = 0
    next_attempt_at: datetime | None = None
    last_error: str = ""
    ended_at: datetime | None = None
