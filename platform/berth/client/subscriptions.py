"""Subscriptions to notifications, and their deliveries."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from berth.client.answers import Answer
from berth.client.transport import Transport


class Subscription(Answer):
    id: int
    of: str
    news: list[str] = []
    to: str = ""
    channel: str = ""
    waiting_minutes: int = 60
    made_by: str = ""
    made_at: datetime | None = None


class Delivery(Answer):
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


class Subscriptions:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> Iterator[Subscription]:
        for item in self._transport.pages("subscriptions"):
            yield Subscription.model_validate(item)

    def create(
        self,
        to: str,
        news: Sequence[str],
        *,
        project: str | None = None,
        department: str | None = None,
        platform: bool = False,
        waiting_minutes: int = 60,
    ) -> Subscription:
        """Of one's own work, unless a place is named."""
        body: dict[str, object] = {"to": to, "news": [*news], "waiting_minutes": waiting_minutes}
        body |= {"platform": True} if platform else {}
        body |= {key: name for key, name in (("project", project), ("department", department)) if name}
        return Subscription.model_validate(self._transport.post("subscriptions", body))

    def delete(self, subscription: int) -> None:
        self._transport.ask("DELETE", f"subscriptions/{subscription}")

    def deliveries(self, subscription: int, *, limit: int | None = None) -> Iterator[Delivery]:
        """What was told there, and what came of it; newest first."""
        for item in self._transport.pages(f"subscriptions/{subscription}/deliveries", limit=limit):
            yield Delivery.model_validate(item)
