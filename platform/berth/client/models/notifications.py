"""Notification subscriptions and deliveries."""

from datetime import datetime

from berth.client.models.base import Model


class Subscription(Model):
    id: int
    of: str
    news: list[str] = []
    to: str = ""
    channel: str = ""
    waiting_minutes: int = 60
    made_by: str = ""
    made_at: datetime | None = None


class Delivery(Model):
    id: int
    at: datetime
    kind: str = ""
    to: str = ""
    channel: str = ""
    state: str = ""
    tries: int = 0
    due_at: datetime | None = None
    last_error: str = ""
    ended_at: datetime | None = None
