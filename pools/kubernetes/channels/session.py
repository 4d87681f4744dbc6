"""Run exec calls over WebSockets of the Kubernetes API (`v4.channel.k8s.io`)."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.typing import Subprotocol

from pools.kubernetes.api_server.api import Api, Unreachable
from pools.kubernetes.manifests import CONTAINER
from pools.runtimes.base import ChannelRejected, RuntimeFailure
from pools.runtimes.ray.agents import enable_keepalive
from pools.runtimes.shim.channels.frames import INPUT, RESIZE

PROTOCOL = Subprotocol("v4.channel.k8s.io")
STATUS = 3
CONNECT_SECONDS = 20.0
MESSAGE_MAX = 2**20
FORBIDDEN = (
    "Berth's account in the cluster may not use {resource}. Apply this version's "
    "deploy/kubernetes/role.yaml (verbs create and get)"
)


class Session:
    """Exec call in progress. `status` is set once the cluster has reported that the command has ended."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self.status: dict[str, Any] | None = None

    async def read_output(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yield each chunk of output with its stream, 1 for stdout or 2 for stderr.

        The command blocks while the caller does not read.
        """
        with suppress(ConnectionClosed):
            async for message in self._socket:
                data = message if isinstance(message, bytes) else message.encode()
                if data[:1] == bytes((STATUS,)):
                    self.status = json.loads(data[1:])
                elif len(data) > 1:
                    yield data[0], data[1:]

    async def send_input(self, data: bytes) -> None:
        with suppress(ConnectionClosed):
            await self._socket.send(bytes((INPUT,)) + data)

    async def resize(self, rows: int, columns: int) -> None:
        with suppress(ConnectionClosed):
            await self._socket.send(
                bytes((RESIZE,)) + json.dumps({"Width": columns, "Height": rows}).encode()
            )

    async def close(self) -> None:
        """Close the connection, which also closes the command's stdin."""
        await self._socket.close()


async def start_session(
    api: Api,
    pod: str,
    command: Sequence[str],
    *,
    has_input: bool,
    has_output: bool,
    has_terminal: bool = False,
    container: str = CONTAINER,
) -> Session:
    """Start a command in a container of the pod.

    `pod` is the pod's API path. Raises ChannelRejected or RuntimeFailure.
    """
    query = [("command", part) for part in command]
    query += [("stdin", str(has_input).lower()), ("stdout", str(has_output).lower())]
    query += [("container", container)]
    query += [("stderr", str(has_output and not has_terminal).lower()), ("tty", str(has_terminal).lower())]
    return Session(await open_socket(api, f"{pod}/exec?{urlencode(query)}", "pods/exec"))


async def open_socket(api: Api, path: str, resource: str) -> ClientConnection:
    """Open a WebSocket to the API server.

    If Berth lacks permission, the error names `resource`. Raises ChannelRejected or RuntimeFailure.
    """
    try:
        target = api.socket_target(path)
        socket = await connect(
            target.url, additional_headers=target.headers, ssl=target.tls, proxy=target.proxy,
            subprotocols=[PROTOCOL], compression=None, max_size=MESSAGE_MAX, open_timeout=CONNECT_SECONDS,
            ping_interval=None, close_timeout=5.0, user_agent_header="berth",
        )  # fmt: skip
        connection = socket.transport.get_extra_info("socket")
        if connection is not None:  # the connection is still open
            enable_keepalive(connection)
    except Unreachable as error:
        raise RuntimeFailure(str(error)) from None
    except InvalidStatus as error:
        raise _to_rejection(api, error, resource) from None
    except (OSError, TimeoutError, InvalidHandshake, InvalidURI, ConnectionClosed) as error:
        raise RuntimeFailure(
            f"the connection to {api.server} failed: {error or type(error).__name__}"
        ) from None
    return socket


def read_status(status: dict[str, Any] | None) -> dict[str, object] | None:
    """Return the channel's status: the command's exit code, or why the command could not be started.

    Return None if the connection was lost before the cluster reported the end.
    """
    if status is None:
        return None
    if status.get("status") == "Success":
        return {"exit_code": 0}
    causes = (status.get("details") or {}).get("causes") or ()
    code = next((cause["message"] for cause in causes if cause.get("reason") == "ExitCode"), "")
    if str(code).isdecimal():
        return {"exit_code": int(code)}
    return {"error": str(status.get("message") or "the cluster reports no reason")}


def _to_rejection(api: Api, error: InvalidStatus, resource: str) -> Exception:
    status = error.response.status_code
    try:
        message = str(json.loads(error.response.body)["message"])
    except (ValueError, KeyError, TypeError):
        message = f"status {status}"
    if status == 403:
        return ChannelRejected(FORBIDDEN.format(resource=resource))
    if status in (400, 404):
        return ChannelRejected(f"the cluster rejects it: {message}")
    return RuntimeFailure(f"{api.server} rejects the call: {message}")
