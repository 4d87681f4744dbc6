"""Notify open pages about changes that the signed-in user may see."""

import re
from dataclasses import dataclass
from urllib.parse import parse_qs

from asgiref.sync import sync_to_async
from channels.db import database_sync_to_async

from berth.server.web.live.listener import LISTENER, ChangeEvent, PageQueue
from projects.access import fully_visible_departments, has_any_role, is_platform_admin, visible_projects
from projects.actor import Actor
from projects.connections.sockets import SignedInConsumer

SECONDS = re.compile(r"\d{1,12}(\.\d{1,9})?", re.ASCII)


@dataclass(frozen=True)
class Visibility:
    """The departments and projects whose changes the signed-in user may see."""

    everything: bool
    departments: frozenset[int]
    projects: frozenset[int]
    capacity: bool  # whether the user may see node pools

    def includes(self, event: ChangeEvent) -> bool:
        if event["project"] is None and event["department"] is None:
            return self.capacity or event["kind"] != "pools"
        return self.everything or event["department"] in self.departments or event["project"] in self.projects


class LiveConsumer(SignedInConsumer):
    """WebSocket consumer that sends {"kind", "ids"} for each change.

    If `ids` is null, any object may have changed. With `?since=` (seconds since 1970), earlier changes are
    sent first.
    """

    async def check_permission(self, actor: Actor) -> int:
        """Accept every signed-in user. The user's roles decide which changes are sent."""
        self.visibility: Visibility = await database_sync_to_async(load_visibility)(actor)
        return 0

    async def prepare(self) -> None:
        self.queue = PageQueue()
        await sync_to_async(LISTENER.add(self.queue).wait, thread_sensitive=False)(5.0)
        for event in self._missed_changes():  # the listener already queues newer changes
            self.queue.put(event)

    async def disconnect(self, code: int) -> None:
        if hasattr(self, "queue"):
            LISTENER.remove(self.queue)
        await super().disconnect(code)

    async def send_messages(self) -> None:
        while True:
            event = await self.queue.events.get()
            if event["kind"] in ("tenants", "everything") and await self.check():
                return  # the permission check has closed the connection
            if self.visibility.includes(event):
                await self.send_json({"kind": event["kind"], "ids": event["ids"]})

    def _missed_changes(self) -> list[ChangeEvent]:
        since = parse_qs(self.scope["query_string"].decode("ascii", "replace")).get("since", [""])[0]
        return LISTENER.missed_events(float(since)) if SECONDS.fullmatch(since) else []


def load_visibility(actor: Actor) -> Visibility:
    if is_platform_admin(actor):
        return Visibility(True, frozenset(), frozenset(), capacity=True)
    return Visibility(
        False,
        frozenset(fully_visible_departments(actor).values_list("pk", flat=True)),
        frozenset(visible_projects(actor).values_list("pk", flat=True)),
        capacity=has_any_role(actor),
    )
