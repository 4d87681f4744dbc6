"""Notify open pages of changes that the reader may see, by kind and ids."""

import re
from dataclasses import dataclass
from urllib.parse import parse_qs

from asgiref.sync import sync_to_async
from channels.db import database_sync_to_async

from berth.server.web.live.listener import LISTENER, Note, PageQueue
from projects.access import has_role, is_platform_admin, visible_projects, whole_departments
from projects.acting import Acting
from projects.connections.sockets import SignedInConsumer

SECONDS = re.compile(r"\d{1,12}(\.\d{1,9})?", re.ASCII)


@dataclass(frozen=True)
class Sight:
    """The departments and projects whose changes the reader may see."""

    everything: bool
    departments: frozenset[int]
    projects: frozenset[int]
    capacity: bool  # whether the reader may see node pools

    def covers(self, note: Note) -> bool:
        if note["project"] is None and note["department"] is None:
            return self.capacity or note["kind"] != "pools"
        return self.everything or note["department"] in self.departments or note["project"] in self.projects


class LiveConsumer(SignedInConsumer):
    """Sends {"kind", "ids"}; ids of null mean any object of that kind.

    With `?since=` (seconds since 1970) it starts with earlier changes. Messages from the client are ignored.
    """

    async def permit(self, acting: Acting) -> int:
        """Accept every signed-in user; roles decide which changes are sent."""
        self.sight: Sight = await database_sync_to_async(sight_of)(acting)
        return 0

    async def prepare(self) -> None:
        self.queue = PageQueue()
        await sync_to_async(LISTENER.add(self.queue).wait, thread_sensitive=False)(5.0)
        for note in self._missed():  # from here on nothing is missed
            self.queue.put(note)

    async def disconnect(self, code: int) -> None:
        if hasattr(self, "queue"):
            LISTENER.remove(self.queue)
        await super().disconnect(code)

    async def send_messages(self) -> None:
        while True:
            note = await self.queue.notes.get()
            if note["kind"] in ("tenants", "everything") and await self.check():
                return  # the guard closes the socket
            if self.sight.covers(note):
                await self.send_json({"kind": note["kind"], "ids": note["ids"]})

    def _missed(self) -> list[Note]:
        """Return the changes since the page was rendered."""
        since = parse_qs(self.scope["query_string"].decode("ascii", "replace")).get("since", [""])[0]
        return LISTENER.missed(float(since)) if SECONDS.fullmatch(since) else []


def sight_of(acting: Acting) -> Sight:
    if is_platform_admin(acting):
        return Sight(True, frozenset(), frozenset(), capacity=True)
    return Sight(
        False,
        frozenset(whole_departments(acting).values_list("pk", flat=True)),
        frozenset(visible_projects(acting).values_list("pk", flat=True)),
        capacity=has_role(acting),
    )
