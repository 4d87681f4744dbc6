"""WebSockets of signed-in users. They close soon after the session or the permission ends."""

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
from projects.connections.credentials import Credential, session_key, user_behind
from projects.connections.watch import WATCH, Connection

log = logging.getLogger(__name__)

SIGNED_OUT = 4401
TOO_MANY = 4429
ABNORMAL = 1006
INTERNAL_ERROR, TRY_AGAIN = 1011, 1013
RECHECK_SECONDS = 60.0  # interval for permissions that depend on more than roles


class SignedInConsumer(AsyncJsonWebsocketConsumer):
    """Subclasses check the permission in `permit` and send messages in `tell` until it returns.

    A refused socket is accepted first and then closed, because browsers show close codes only for accepted
    sockets.
    """

    async def permit(self, acting: Acting) -> int:
        """Return 0 or a close code. Called again whenever permissions may have changed."""
        raise NotImplementedError

    async def prepare(self) -> None:
        """Prepare the socket. Called once, before the socket is accepted."""

    async def send_messages(self) -> None:
        raise NotImplementedError

    async def connect(self) -> None:
        self.connection: Connection | None = None
        self.tasks: list[asyncio.Task[None]] = []
        self.credential = Credential(session_key=session_key(self.scope["headers"]))
        try:
            await self._open()
        except BaseException:  # for example, the browser has already disconnected
            # Channels does not call `disconnect` for a socket that fails to open
            await self.disconnect(ABNORMAL)
            raise

    async def _open(self) -> None:
        code = await self._enter()
        if code:
            await self.accept()
            await self.close(code)
            return
        await self.prepare()
        await self.accept()
        self.tasks = [asyncio.create_task(self._send()), asyncio.create_task(self._guard())]

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
        """Ignore messages: pages only receive."""

    async def check(self) -> int:
        """Return 0 while the user is signed in and permitted, else a close code."""
        user = await self._user()
        return SIGNED_OUT if user is None else await self.permit(Acting.person(user))

    async def _enter(self) -> int:
        user = await self._user()
        if user is None:
            return SIGNED_OUT
        if WATCH.count(user.pk) >= settings.BERTH_CONNECTIONS_PER_USER:
            return TOO_MANY
        self.connection = WATCH.open(self.credential, user.pk)
        return await self.permit(Acting.person(user))

    async def _user(self) -> User | None:
        return await database_sync_to_async(user_behind)(self.credential)

    async def _guard(self) -> None:
        """Stop sending and close the socket once the user may no longer receive messages."""
        assert self.connection is not None
        code = 0
        while not code:
            await self.connection.changed(RECHECK_SECONDS)
            try:
                code = await self.check()
            except (OperationalError, InterfaceError):
                code = TRY_AGAIN  # the page reconnects and is then checked
            except Exception:
                log.exception("could not check the permissions of a socket")
                code = INTERNAL_ERROR
        self.tasks[0].cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.tasks[0]
        await self.close(code)

    async def _send(self) -> None:
        try:
            await self.send_messages()
        except Exception:
            log.exception("a socket failed")
            await self.close(INTERNAL_ERROR)
