"""Connect to a port inside the pod and copy data in both directions."""

from __future__ import annotations

import os
import select
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

LOOPBACK = ("127.0.0.1", "::1")
BLOCK = 64 * 1024
CONNECT_SECONDS = 10.0
PORT_MAX = 65_535
_PREFIX = "BERTH_PORT_"


class NotListening(Exception):
    """Raised if no process in the pod listens on the port."""


def resolve_port(port: object, env: Mapping[str, str]) -> int:
    """Return a port's number.

    The port is given by its number, or by its name in the workload's document. Raises ValueError.
    """
    if isinstance(port, str):
        names = [name for name, value in env.items() if name.startswith(_PREFIX) and value.isdigit()]
        variable = _PREFIX + port.upper().replace("-", "_")
        if variable not in names:
            listed = ", ".join(name[len(_PREFIX) :].lower().replace("_", "-") for name in names) or "none"
            raise ValueError(f"the pod has no port named {port!r}; its named ports: {listed}")
        port = int(env[variable])
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port <= PORT_MAX:
        raise ValueError(f"a port must be a name or a number from 1 to {PORT_MAX}")
    return port


def connect(port: int, env: Mapping[str, str]) -> socket.socket:
    """Connect to a port on a loopback address or on the pod's own address. Raises NotListening."""
    for address in (*LOOPBACK, env.get("BERTH_HOST", "")):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            # Accept only IP addresses, because names cannot be resolved inside the pod.
            socket.inet_pton(family, address)
            connection = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue
        connection.settimeout(CONNECT_SECONDS)
        try:
            connection.connect((address, port))
        except OSError:
            connection.close()
            continue
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection
    raise NotListening(f"Nothing is listening on port {port} in the pod.")


def forward(connection: socket.socket, *, until_first_end: bool = False) -> None:
    """Copy data from stdin to the connection and from the connection to stdout, until both directions end.

    If `until_first_end` is set, return as soon as one direction ends. Raises OSError.
    """
    connection.setblocking(False)
    fd = connection.fileno()
    os.set_blocking(1, False)
    flows = [_Flow(0, fd), _Flow(fd, 1)]
    is_over = any if until_first_end else all
    while not is_over(flow.has_ended for flow in flows):
        poller, events = select.poll(), dict[int, int]()
        for flow in flows:
            for descriptor, event in ((flow.fd_to_read, select.POLLIN), (flow.fd_to_write, select.POLLOUT)):
                if descriptor is not None:
                    events[descriptor] = events.get(descriptor, 0) | event
        for descriptor, event in events.items():
            poller.register(descriptor, event)
        ready = dict(poller.poll())
        for flow in flows:
            if flow.fd_to_read in ready or flow.fd_to_write in ready:
                flow.transfer()
            if flow.is_complete:
                flow.has_ended = True
                if flow.target == fd:
                    connection.shutdown(socket.SHUT_WR)
                else:
                    os.close(1)


class _Flow:
    """One direction of a forwarded connection. Data is written to the target before more is read."""

    def __init__(self, source: int, target: int) -> None:
        self._source, self.target = source, target
        self._held = b""
        self._is_open = True
        self.has_ended = False

    @property
    def fd_to_read(self) -> int | None:
        return self._source if self._is_open and not self._held else None

    @property
    def fd_to_write(self) -> int | None:
        return self.target if self._held else None

    @property
    def is_complete(self) -> bool:
        return not self._is_open and not self._held and not self.has_ended

    def transfer(self) -> None:
        try:
            if not self._held and self._is_open:
                self._held = os.read(self._source, BLOCK)
                self._is_open = bool(self._held)
            if self._held:
                self._held = self._held[os.write(self.target, self._held) :]
        except BlockingIOError:
            return
