"""Forward a channel to a pod's port through the API server (`pods/portforward`).

The cluster reports an error if no process listens on the port, but never reports that a connection was
established. A connection cannot be closed in only one direction.
"""

import asyncio
import time
from collections.abc import Mapping

from pools.kubernetes.api_server.api import Api, ApiError, Unreachable
from pools.kubernetes.channels.client import ChannelClient
from pools.kubernetes.channels.ports import NotListening, PortConnection, connect_port
from pools.kubernetes.channels.tasks import cancel_task
from pools.runtimes.base import ChannelRejected, RuntimeFailure
from pools.runtimes.shim.channels.forwarding import resolve_port
from pools.runtimes.shim.channels.frames import END, ERRORS, OUTPUT

REJECTION_SECONDS = 1.0  # time within which the cluster reports that nothing is listening
KNOWN_SECONDS = 60.0  # seconds for which a port counts as listening after it accepted a connection
HALF_CLOSED_SECONDS = 30.0  # after the end of input, a connection closes if the pod is silent for this long
CONNECTED, RESET = {"exit_code": 0}, {"exit_code": 1}


class KnownPorts:
    """Pod ports that have recently accepted a connection."""

    def __init__(self) -> None:
        # Monotonic time until which each port counts as listening.
        self._until: dict[tuple[str, int], float] = {}

    def add(self, pod: str, port: int) -> None:
        now = time.monotonic()
        self._until = {key: until for key, until in self._until.items() if until > now}
        self._until[pod, port] = now + KNOWN_SECONDS

    def discard(self, pod: str, port: int) -> None:
        self._until.pop((pod, port), None)

    def is_known(self, pod: str, port: int) -> bool:
        return self._until.get((pod, port), 0.0) > time.monotonic()


async def find_port(api: Api, pod: str, port: object) -> int:
    """Return a port's number.

    `port` is this number, or the port's name in the workload's document. Raises ValueError, ChannelRejected
    or RuntimeFailure.
    """
    env = await asyncio.to_thread(_read_environment, api, pod) if isinstance(port, str) else {}
    return resolve_port(port, env)


async def forward(
    client: ChannelClient, api: Api, pod: str, port: int, ports: KnownPorts
) -> dict[str, object]:
    """Forward the client to the pod's port, and return the channel's status.

    The channel's error stream ends as soon as the connection is established. Raises ChannelRejected or
    RuntimeFailure.
    """
    connection = await connect_port(api, pod, port)
    forwarding = _Forwarding(client, connection)
    try:
        await forwarding.wait_connected(0.0 if ports.is_known(pod, port) else REJECTION_SECONDS)
        ports.add(pod, port)
        await client.send(END, bytes((ERRORS,)))
        await forwarding.run()
    except NotListening as error:
        ports.discard(pod, port)
        await client.send_output(ERRORS, f"{error}\n".encode())
        return dict(RESET)
    finally:
        await forwarding.close()
    return dict(CONNECTED)


class _Forwarding:
    """Forwarded connection between a client and a pod's port."""

    def __init__(self, client: ChannelClient, connection: PortConnection) -> None:
        self._client, self._connection = client, connection
        self._next = asyncio.create_task(connection.read())
        self._has_output = asyncio.Event()

    async def wait_connected(self, seconds: float) -> None:
        """Wait up to `seconds` for an error or the first output. Raises NotListening or ChannelRejected."""
        await asyncio.wait({self._next}, timeout=seconds)
        if self._next.done():
            self._next.result()

    async def run(self) -> None:
        """Copy data in both directions until the connection ends. Raises NotListening or ChannelRejected."""
        sender, receiver = asyncio.create_task(self._send()), asyncio.create_task(self._receive())
        try:
            await asyncio.wait({sender, receiver}, return_when=asyncio.FIRST_COMPLETED)
            if receiver.done():
                receiver.result()
        finally:
            await cancel_task(sender)
            await cancel_task(receiver)

    async def close(self) -> None:
        await cancel_task(self._next)
        await self._connection.close()

    async def _receive(self) -> None:
        while data := await self._next:
            self._next = asyncio.create_task(self._connection.read())
            self._has_output.set()
            await self._client.send_output(OUTPUT, data)
        await self._client.send(END, bytes((OUTPUT,)))

    async def _send(self) -> None:
        """Send the client's input. When the input ends, wait until the pod has sent nothing for a while."""
        client = self._client
        while not client.input_ended or client.has_input:
            await client.has_event.wait()
            client.has_event.clear()
            while data := client.take_input():
                await self._connection.write(data)
                client.acknowledge(len(data))
        while True:
            self._has_output.clear()
            try:
                async with asyncio.timeout(HALF_CLOSED_SECONDS):
                    await self._has_output.wait()
            except TimeoutError:
                return


def _read_environment(api: Api, pod: str) -> Mapping[str, str]:
    try:
        containers = api.get(pod)["spec"]["containers"]
    except ApiError as error:
        if error.status == 404:
            raise ChannelRejected("the pod is not running") from None
        raise RuntimeFailure(error.message) from None
    except Unreachable as error:
        raise RuntimeFailure(str(error)) from None
    variables = [variable for container in containers for variable in container.get("env") or ()]
    return {variable["name"]: variable["value"] for variable in variables if "value" in variable}
