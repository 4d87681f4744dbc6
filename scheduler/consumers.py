"""Here an open page learns that something changed: the kind and the ids, only of what its reader may see."""

import asyncio
import contextlib
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from asgiref.sync import sync_to_async
from channels.auth import get_user
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer

from berth.web.live.listener import LISTENER, Ear, Note
from projects.access import has_role, is_platform_admin, visible_projects, whole_departments
from projects.acting import Acting

SIGNED_OUT = 4401
SECONDS = re.compile(r"\d{1,12}(\.\d{1,9})?", re.ASCII)
LOOK_AGAIN_SECONDS = 60.0  # at roles and session, also when nobody announced a change of them


@dataclass(frozen=True)
class Sight:
    """Whose changes the reader may learn of."""

    everything: bool
    departments: frozenset[int]
    projects: frozenset[int]
    capacity: bool  # whether the reader may see node pools

    def covers(self, note: Note) -> bool:
        if note["project"] is None and note["department"] is None:
            return self.capacity or note["kind"] != "pools"
        return self.everything or note["department"] in self.departments or note["project"] in self.projects


class LiveConsumer(AsyncJsonWebsocketConsumer):
    """Sends {"kind", "ids"}; ids of null: any of that kind; from `?since=` (seconds since 1970) on, if given.
    Takes no orders."""

    async def connect(self) -> None:
        self.teller: asyncio.Task[None] | None = None
        self.ear: Ear | None = None
        sight = await self._look()
        if sight is None:
            await self.accept()
            await self.close(SIGNED_OUT)
            return
        self.sight = sight
        self.ear = ear = Ear()
        await sync_to_async(LISTENER.add(ear).wait, thread_sensitive=False)(5.0)
        await self.accept()  # whoever is told that the line is open misses nothing from here on
        for note in self._missed():
            ear.hear(note)
        self.teller = asyncio.create_task(self._tell(ear))

    async def disconnect(self, code: int) -> None:
        if self.ear is not None:
            LISTENER.remove(self.ear)
        if self.teller is not None:
            self.teller.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.teller

    async def receive(
        self, text_data: str | None = None, bytes_data: bytes | None = None, **kwargs: Any
    ) -> None:
        """Pages only listen; what they say is dropped unread."""

    def _missed(self) -> list[Note]:
        """What was told between the moment that the page shows and this one."""
        since = parse_qs(self.scope["query_string"].decode("ascii", "replace")).get("since", [""])[0]
        return LISTENER.missed(float(since)) if SECONDS.fullmatch(since) else []

    async def _tell(self, ear: Ear) -> None:
        loop = asyncio.get_running_loop()
        look_again = loop.time() + LOOK_AGAIN_SECONDS
        while True:
            note: Note | None = None
            with contextlib.suppress(TimeoutError):
                note = await asyncio.wait_for(ear.heard.get(), max(0.0, look_again - loop.time()))
            if note is None or note["kind"] in ("tenants", "everything"):
                sight = await self._look()
                if sight is None:
                    await self.close(SIGNED_OUT)
                    return
                self.sight, look_again = sight, loop.time() + LOOK_AGAIN_SECONDS
            if note is not None and self.sight.covers(note):
                await self.send_json({"kind": note["kind"], "ids": note["ids"]})

    async def _look(self) -> Sight | None:
        """None for who is not, or no longer, signed in."""
        user = await get_user(self.scope)
        if not user.is_authenticated or not user.is_active:
            return None
        return await database_sync_to_async(sight_of)(Acting.person(user))


def sight_of(acting: Acting) -> Sight:
    if is_platform_admin(acting):
        return Sight(True, frozenset(), frozenset(), capacity=True)
    return Sight(
        False,
        frozenset(whole_departments(acting).values_list("pk", flat=True)),
        frozenset(visible_projects(acting).values_list("pk", flat=True)),
        capacity=has_role(acting),
    )
