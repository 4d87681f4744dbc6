"""WebSockets for signed-in users. A socket closes soon after its session or permission ends."""

import asyncio
import contextlib
import logging
from typing import Any

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.conf import settings
from django.contrib.auth.models import User
from django.db import InterfaceError, OperationalError

from projects.actor import ALL_SCOPES, Actor
from projects.connections.credentials import Credential, load_active_user, session_key
from projects.connections.watch import WATCHER, Connection

log = logging.getLogger(__name__)

SIGNED_OUT = 4401
TOO_MANY_CONNECTIONS = 4429
ABNORMAL = 1006
INTERNAL_ERROR, TRY_AGAIN = 1011, 1013
RECHECK_SECONDS = 60.0  # recheck interval for permissions that depend on more than roles


class SignedInConsumer(AsyncJsonWebsocketConsumer):
    """Base consumer for the WebSockets of signed-in users.

    Subclasses implement `check_permission` and `send_messages`. A rejected socket is accepted and then
    closed, because browsers expose close codes only then.
    """

    async def check_permission(self, actor: Actor) -> int:
        """Return 0 if the connection is permitted, otherwise a close code.

        Called again whenever permissions may have changed.
        """
        raise NotImplementedError

    async def authenticate(self) -> tuple[Credential, frozenset[str]]:
        """Return the connection's credential and scopes. The default credential is the browser session."""
        return Credential(session_key=session_key(self.scope["headers"])), ALL_SCOPES

    async def reject(self, code: int) -> None:
        """Close an accepted socket with a code that states the reason."""
        await self.close(code)

    async def prepare(self) -> None:
        """Prepare the socket. Called once, before the socket is accepted."""

    async def send_messages(self) -> None:
        raise NotImplementedError

    async def __call__(self, *arguments: Any) -> None:
        self.connection: Connection | None = None
        self.tasks: list[asyncio.Task[None]] = []
        try:
            await super().__call__(*arguments)
        except BaseException:  # the browser may disconnect while the socket is being accepted
            # Channels does not call `disconnect` after an exception.
            await self.disconnect(ABNORMAL)
            raise

    async def connect(self) -> None:
        self.credential, self.scopes = await self.authenticate()
        code = await self._register()
        if code:
            await self.accept()
            await self.reject(code)
            return
        await self.prepare()
        await self.accept()
        self.tasks = [asyncio.create_task(self._run_sender()), asyncio.create_task(self._watch_permission())]

    async def disconnect(self, code: int) -> None:
        if self.connection is not None:
            WATCHER.close(self.connection)
        for task in self.tasks:
            task.cancel()
        for task in self.tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def receive(
        self, text_data: str | None = None, bytes_data: bytes | None = None, **kwargs: Any
    ) -> None:
        """Ignore incoming messages, because only the server sends."""

    async def check(self) -> int:
        """Return 0 if the user is signed in and permitted, otherwise a close code."""
        user = await self._load_user()
        return SIGNED_OUT if user is None else await self.check_permission(Actor.for_user(user, self.scopes))

    async def _register(self) -> int:
        user = await self._load_user()
        if user is None:
            return SIGNED_OUT
        if WATCHER.count(user.pk) >= settings.BERTH_CONNECTIONS_PER_USER:
            return TOO_MANY_CONNECTIONS
        self.connection = WATCHER.open(self.credential, user.pk)
        return await self.check_permission(Actor.for_user(user, self.scopes))

    async def _load_user(self) -> User | None:
        return await database_sync_to_async(load_active_user)(self.credential)

    async def _watch_permission(self) -> None:
        """Stop sending and close the socket once the user may no longer receive messages."""
        assert self.connection is not None
        code = 0
        while not code:
            await self.connection.wait_for_change(RECHECK_SECONDS)
            try:
                code = await self.check()
            except (OperationalError, InterfaceError):
                code = TRY_AGAIN  # the page reconnects, and its permission is then checked again
            except Exception:
                log.exception("could not check permissions for a WebSocket")
                code = INTERNAL_ERROR
        self.tasks[0].cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.tasks[0]
        await self.reject(code)

    async def _run_sender(self) -> None:
        try:
            await self.send_messages()
        except Exception:
            log.exception("a WebSocket failed")
            await self.close(INTERNAL_ERROR)
