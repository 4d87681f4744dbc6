"""Rendezvous of training ranks that may join and leave at any time.

Before each step, rank 0 sends "go" or, after a change or failure, its state and a new ring.
"""

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from berth.examples.messages import receive, send
from berth.examples.network import State
from berth.examples.ring import Address, Ring

JOIN_SECONDS = 120.0


class LeaderEnded(Exception):
    """Raised if rank 0 has exited, because the run cannot continue without it."""


def open_data_listener() -> socket.socket:
    """Return a listening socket for the previous rank in the ring."""
    host = socket.gethostbyname("localhost")
    return socket.create_server((host, 0))


@dataclass
class Member:
    """Training rank other than 0."""

    control: socket.socket
    listener: socket.socket
    ring: Ring | None = None

    @classmethod
    def join(cls, leader: Address, rank: int) -> "Member":
        listener = open_data_listener()
        deadline = time.monotonic() + JOIN_SECONDS
        while True:
            try:
                control = socket.create_connection(leader, timeout=5)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        control.settimeout(None)
        send(control, {"rank": rank, "address": listener.getsockname()[:2]})
        return cls(control, listener)

    def next_step(self, state: State) -> State | None:
        """Return the state for the next training step, or None after the last step. Raises LeaderEnded."""
        while True:
            try:
                header, body = receive(self.control)
            except OSError as error:
                raise LeaderEnded from error
            if header["say"] == "done":
                return None
            if header["say"] == "go" and self.ring is not None:
                return state
            if header["say"] == "ring":
                state = State.from_bytes(body)
                self._form_ring(header)

    def discard_ring(self) -> None:
        self.ring = None

    def leave(self) -> None:
        self.control.close()
        if self.ring is not None:
            self.ring.close()

    def _form_ring(self, header: dict[str, Any]) -> None:
        if self.ring is not None:
            self.ring.close()
        try:
            self.ring = Ring(self.listener, header["addresses"], header["position"], header["epoch"])
        except ConnectionError:
            self.ring = None  # the leader's ring breaks as well, and the leader forms a new one


@dataclass
class Leader:
    """Rank 0. Training begins once `size` ranks, including rank 0, have joined."""

    server: socket.socket
    size: int
    listener: socket.socket = field(default_factory=open_data_listener)
    members: dict[int, tuple[socket.socket, Address]] = field(default_factory=dict)
    ring: Ring | None = None
    epoch: int = 0

    @classmethod
    def open(cls, address: Address, size: int) -> "Leader":
        return cls(socket.create_server(address), size)

    def wait_for_members(self) -> None:
        """Wait until all ranks of the initial crew have joined."""
        deadline = time.monotonic() + JOIN_SECONDS
        while len(self.members) < self.size - 1:
            if time.monotonic() > deadline:
                raise TimeoutError(f"only {len(self.members) + 1} of {self.size} ranks have joined")
            self._accept_members(0.05)

    def next_step(self, state: State, must_stop: Callable[[], bool] = lambda: False) -> bool:
        """Start the next step on all ranks. Return False if `must_stop()` becomes true first.

        In that case, the caller should save a checkpoint. Forming a ring may take seconds.
        """
        changed = self._accept_members(0) | self._drop_ended_members()
        while changed or self.ring is None:
            if must_stop():
                return False
            changed = not self._form_ring(state) or self._drop_ended_members()
        for rank in list(self.members):
            self._send_to(rank, {"say": "go"})
        return True

    def discard_ring(self) -> None:
        self.ring = None

    def finish(self) -> None:
        for rank in list(self.members):
            self._send_to(rank, {"say": "done"})

    def _accept_members(self, seconds: float) -> bool:
        joined = False
        while True:
            self.server.settimeout(seconds)
            try:
                control, _ = self.server.accept()
            except (TimeoutError, BlockingIOError):
                return joined
            control.settimeout(5)
            try:
                header, _ = receive(control)
            except OSError:
                continue
            rank, (host, port) = int(header["rank"]), header["address"]
            if rank in self.members:  # the rank was restarted
                self._drop_member(rank)
            self.members[rank] = control, (host, port)
            joined = True

    def _drop_ended_members(self) -> bool:
        """Drop members that have ended. Return whether there were any."""
        ended = [rank for rank, (control, _) in self.members.items() if _has_ended(control)]
        for rank in ended:
            self._drop_member(rank)
        return bool(ended)

    def _form_ring(self, state: State) -> bool:
        if self.ring is not None:
            self.ring.close()
        self.epoch += 1
        ranks = sorted(self.members)
        addresses = [self.listener.getsockname()[:2], *(self.members[rank][1] for rank in ranks)]
        body = state.to_bytes()
        for position, rank in enumerate(ranks, start=1):
            header = {"say": "ring", "epoch": self.epoch, "addresses": addresses, "position": position}
            self._send_to(rank, header, body)
        try:
            self.ring = Ring(self.listener, addresses, 0, self.epoch)
        except ConnectionError:
            time.sleep(0.05)
            self.ring = None
        return self.ring is not None

    def _send_to(self, rank: int, header: dict[str, Any], body: bytes = b"") -> None:
        try:
            send(self.members[rank][0], header, body)
        except OSError:
            self._drop_member(rank)

    def _drop_member(self, rank: int) -> None:
        self.members.pop(rank)[0].close()


def _has_ended(control: socket.socket) -> bool:
    control.setblocking(False)
    try:
        return control.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        control.settimeout(5)
