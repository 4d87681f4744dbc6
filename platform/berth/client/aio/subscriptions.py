"""Manage notification subscriptions and list their deliveries."""

from collections.abc import AsyncIterator, Sequence

from berth.client.aio.transport import AsyncTransport
from berth.client.models.notifications import Delivery, Subscription


class AsyncSubscriptions:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> AsyncIterator[Subscription]:
        async for item in self._transport.iterate_items("subscriptions"):
            yield Subscription.model_validate(item)

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
        """Subscribe to your own workloads, a project, a department or the whole platform."""
        body: dict[str, object] = {"to": to, "events": [*events], "pending_minutes": pending_minutes}
        body |= {"platform_wide": True} if platform_wide else {}
        body |= {key: name for key, name in (("project", project), ("department", department)) if name}
        return Subscription.model_validate(await self._transport.post("subscriptions", body))

    async def delete(self, subscription: int) -> None:
        await self._transport.execute("DELETE", f"subscriptions/{subscription}")

    async def deliveries(self, subscription: int, *, limit: int | None = None) -> AsyncIterator[Delivery]:
        """Iterate over deliveries and their outcomes, newest first."""
        async for item in self._transport.iterate_items(
            f"subscriptions/{subscription}/deliveries", limit=limit
        ):
            yield Delivery.model_validate(item)
