"""Manage notification subscriptions and list their deliveries."""

from collections.abc import AsyncIterator, Sequence

from berth.client.aio.resource import AsyncResource
from berth.client.models.notifications import Delivery, Subscription


class AsyncSubscriptions(AsyncResource):
    def list(self) -> AsyncIterator[Subscription]:
        return self._iterate(Subscription, "subscriptions")

    async def create(
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
        return await self._post(Subscription, "subscriptions", body)

    async def edit(
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
        return await self._send(Subscription, "PATCH", f"subscriptions/{subscription}", body=body)

    async def delete(self, subscription: int) -> None:
        await self._delete(f"subscriptions/{subscription}")

    async def send_test(self, subscription: int) -> Delivery:
        """Send a test notification to a subscription, at most once a minute. Return the delivery."""
        return await self._post(Delivery, f"subscriptions/{subscription}/test", {})

    def deliveries(self, subscription: int, *, limit: int | None = None) -> AsyncIterator[Delivery]:
        """Iterate over deliveries and their outcomes, newest first."""
        return self._iterate(Delivery, f"subscriptions/{subscription}/deliveries", limit=limit)

    async def delivery(self, subscription: int, delivery: int) -> Delivery:
        return await self._get(Delivery, f"subscriptions/{subscription}/deliveries/{delivery}")

    async def resend(self, subscription: int, delivery: int) -> Delivery:
        """Resend a failed delivery. Return the delivery, which is pending again."""
        return await self._post(Delivery, f"subscriptions/{subscription}/deliveries/{delivery}/resend", {})
