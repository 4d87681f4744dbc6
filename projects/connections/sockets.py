"""WebSockets of people who are signed in: they close soon after the session or the right ends."""

import asyncio
import contextlib
import logging
from typing import Any

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.conf import settings
from django.contrib.auth.models import User
from django.db import InterfaceError, OperationalError

from projects.acting import Acting
from projects.connections.credentials import Credential, person_behind, session_key
from projects.connections.watch import WATCH, Connection

log = logging.getLogger(__name__)

SIGNED_OUT = 4401
TOO_MANY = 4429
ABNORMAL = 1006
BROKEN, TRY_AGAIN = 1011, 1013
LOOK_AGAIN_SECONDS = 60.0  # at rights that depend on more than the person's roles


class SignedInConsumer(AsyncJsonWebsocketConsumer):
    """A subclass says in `permit` whether the person may listen and sends in `tell` until it returns.

    A refusal closes an accepted socket: browsers show the code of no other.
    """

    async def permit(self, acting: Acting) -> int:
        """0, or the code with which the socket is closed. Called again whenever rights may have changed."""
        raise NotImplementedError

    async def prepare(self) -> None:
        """Called once, before the socket is accepted."""

    async def tell(self) -> None:
        raise NotImplementedError

    async def connect(self) -> None:
        self.connection: Connection | None = None
        self.tasks: list[asyncio.Task[None]] = []
        self.credential = Credential(session_key=session_key(self.scope["headers"]))
        try:
            await self._open()
        except BaseException:  # a browser that has gone already, for example
            await self.disconnect(ABNORMAL)  # Channels does not call it for a socket that fails to open
            raise

    async def _open(self) -> None:
        code = await self._enter()
        if code:
            await self.accept()
            await self.close(code)
            return
        await self.prepare()
        await self.accept()
        self.tasks = [asyncio.create_task(self._talk()), asyncio.create_task(self._guard())]

    async def disconnect(self, code: int) -> None:
        if self.connection is not None:
            WATCH.close(self.connection)
        for task in self.tasks:
            task.cancel()
        for task in self.tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def receive(
        self, text_data: str | None = None, bytes_data: bytes | None = None, **kwargs: Any
    ) -> None:
        """Pages only listen; what they send is dropped unread."""

    async def look(self) -> int:
        """0 where the person is signed in and permitted, else the code to close with."""
        user = await self._person()
        return SIGNED_OUT if user is None else await self.permit(Acting.person(user))

    async def _enter(self) -> int:
        user = await self._person()
        if user is None:
            return SIGNED_OUT
        if WATCH.count(user.pk) >= settings.BERTH_CONNECTIONS_PER_USER:
            return TOO_MANY
        self.connection = WATCH.open(self.credential, user.pk)
        return await self.permit(Acting.person(user))

    async def _person(self) -> User | None:
        return await database_sync_to_async(person_behind)(self.credential)

    async def _guard(self) -> None:
        """Close the socket, and stop telling before that, once the person may not listen any more."""
        assert self.connection is not None
        code = 0
        while not code:
            await self.connection.changed(LOOK_AGAIN_SECONDS)
            try:
                code = await self.look()
            except (OperationalError, InterfaceError):
                code = TRY_AGAIN  # the page connects again and is checked then
            except Exception:
                log.exception("the rights of a socket could not be checked")
                code = BROKEN
        self.tasks[0].cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.tasks[0]
        await self.close(code)

    async def _talk(self) -> None:
        try:
            await self.tell()
        except Exception:
            log.exception("a socket broke")
            await self.close(BROKEN)
