"""Serve a channel to a Kubernetes pod through exec calls and port forwarding."""

import asyncio
import json
import socket
from collections.abc import Coroutine
from typing import Any

from pools.kubernetes.api_server.api import Api
from pools.kubernetes.channels import programs, scripts
from pools.kubernetes.channels.client import ChannelClient
from pools.kubernetes.channels.commands import Command, parse_command
from pools.kubernetes.channels.forwarding import KnownPorts, find_port, forward
from pools.kubernetes.channels.tasks import cancel_task
from pools.runtimes.base import ChannelRejected, RuntimeFailure
from pools.runtimes.shim.channels.frames import STATUS
from pools.runtimes.shim.channels.programs import CONNECT, SSH

START_SECONDS = 30.0  # time for the client to send its request
FLUSH_SECONDS = 30.0  # time for the client to receive the status
CONFLICT, INVALID, UNAVAILABLE = 409, 422, 503  # HTTP statuses of failed channels
REJECTED_COMMANDS = "Commands cannot be run in this pod"
REJECTED_PORTS = "Ports of this pod cannot be forwarded"
REJECTED_FILES = "Files cannot be copied to or from this pod"
Status = dict[str, object]


class Bridge:
    """One channel to a pod. `pod` is the pod's API path."""

    def __init__(self, api: Api, pod: str, ports: KnownPorts) -> None:
        self._api, self._pod, self._ports = api, pod, ports

    async def serve(self, connection: socket.socket) -> None:
        """Serve the channel until the request or the connection ends, then close the connection."""
        connection.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=connection)
        client = ChannelClient(self._pod, reader, writer)
        receiver = asyncio.create_task(client.receive())
        request = asyncio.create_task(self._serve(client))
        try:
            await asyncio.wait({receiver, request}, return_when=asyncio.FIRST_COMPLETED)
            status = await cancel_task(request)
            if status is not None:
                await client.send(STATUS, json.dumps(status).encode())
                writer.write_eof()
                # Closing the connection while the client sends credit could make the client lose the status.
                await asyncio.wait({receiver}, timeout=FLUSH_SECONDS)
        except OSError:  # the client has disconnected
            pass
        finally:
            request.cancel()
            await cancel_task(receiver)
            writer.close()

    async def _serve(self, client: ChannelClient) -> Status | None:
        """Serve the request and return its status.

        Return None if no request arrived in time or the connection to the cluster was lost.
        """
        try:
            async with asyncio.timeout(START_SECONDS):
                await client.has_request.wait()
        except TimeoutError:
            return None
        try:
            serving = await self._begin_request(client, client.request)
            if isinstance(serving, str):
                return {"error": f"The request is not valid: {serving}.", "status": INVALID}
            return await serving
        except ChannelRejected as error:
            return {"error": f"{_rejection_subject(client.request)}: {error}.", "status": CONFLICT}
        except RuntimeFailure as error:
            return {"error": f"The pod cannot be reached right now: {error}.", "status": UNAVAILABLE}

    async def _begin_request(
        self, client: ChannelClient, request: dict[str, Any]
    ) -> Coroutine[Any, Any, Status | None] | str:
        """Return the coroutine that serves the request, or the reason why the request is invalid.

        Raises ChannelRejected or RuntimeFailure.
        """
        api, pod = self._api, self._pod
        try:
            if SSH in request:
                return Command(api, pod, client, scripts.HOLD, None).run()
            if CONNECT in request:
                port = await find_port(api, pod, request[CONNECT])
                return forward(client, api, pod, port, self._ports)
            if any(kind in request for kind in programs.KINDS):
                return programs.Program(api, pod, client).run()
            return Command(api, pod, client, *parse_command(request)).run()
        except (ValueError, KeyError, TypeError) as error:
            return str(error)


def _rejection_subject(request: dict[str, Any]) -> str:
    if CONNECT in request:
        return REJECTED_PORTS
    return REJECTED_FILES if any(kind in request for kind in programs.KINDS) else REJECTED_COMMANDS
