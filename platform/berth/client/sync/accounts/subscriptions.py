# Generated from berth/client/aio/accounts/subscriptions.py by `python -m berth.client.generate`; do not edit.
"""Manage notification subscriptions and list their deliveries."""

from collections.abc import Iterator, Sequence

from berth.client.models.notifications import Delivery, Subscription
from berth.client.sync.resource import Resource


class Subscriptions(Resource):
    def list(self) -> Iterator[Subscription]:
        return self._iterate(Subscription, "subscriptions")

    def create(
        self,
        to: str,
        events: Sequence[str],
        *,
        project: str | None = None,
        department: str | None = None,
        platform_wide: bool = False,
        pending_minutes: int = 60,
    ) -> Subscription:
        """Subscribe to your own workloads, a project, a department or the entire platform."""
        body: dict[str, object] = {"to": to, "events": [*events], "pending_minutes": pending_minutes}
        body |= {"platform_wide": True} if platform_wide else {}
        body |= {key: name for key, name in (("project", project), ("department", department)) if name}
        return self._post(Subscription, "subscriptions", body)

    def edit(
        self,
        subscription: int,
        *,
        to: str | None = None,
        events: Sequence[str] | None = None,
        pending_minutes: int | None = None,
    ) -> Subscription:
        """Change the given values of a subscription, but not its scope."""
        values = {"to": to, "events": events and [*events], "pending_minutes": pending_minutes}
        body = {key: value for key, value in values.items() if value is not None}
        return self._send(Subscription, "PATCH", f"subscriptions/{subscription}", body=body)

    def delete(self, subscription: int) -> None:
        self._delete(f"subscriptions/{subscription}")

    def send_test(self, subscription: int) -> Delivery:
        """Send a test notification to a subscription, at most once a minute. Return the delivery."""
        return self._post(Delivery, f"subscriptions/{subscription}/test", {})

    def deliveries(self, subscription: int, *, limit: int | None = None) -> Iterator[Delivery]:
        """Iterate over deliveries and their outcomes, newest first."""
        return self._iterate(Delivery, f"subscriptions/{subscription}/deliveries", limit=limit)

    def delivery(self, subscription: int, delivery: int) -> Delivery:
        return self._get(Delivery, f"subscriptions/{subscription}/deliveries/{delivery}")

    def resend(self, subscription: int, delivery: int) -> Delivery:
        """Resend a failed delivery. Return the delivery, which is pending again."""
        return self._post(Delivery, f"subscriptions/{subscription}/deliveries/{delivery}/resend", {})
