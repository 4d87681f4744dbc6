"""Copy bytes between two sockets."""

from __future__ import annotations

import select
import socket

from pools.runtimes.shim.channels.frames import CHUNK


def copy_between(one: socket.socket, other: socket.socket) -> None:
    """Copy bytes in both directions until both sides have finished or one disconnects.

    At most one chunk is buffered, so a slow reader slows down its writer.
    """
    peers = {one.fileno(): (one, other), other.fileno(): (other, one)}
    buffers = {one.fileno(): bytearray(), other.fileno(): bytearray()}  # unsent bytes, by receiver
    sending = {one.fileno(), other.fileno()}
    for each in (one, other):
        each.setblocking(False)
    while sending or any(buffers.values()):
        poller = select.poll()
        for fd, (_, peer) in peers.items():
            reads = fd in sending and not buffers[peer.fileno()]
            if reads or buffers[fd]:
                events = (select.POLLIN if reads else 0) | (select.POLLOUT if buffers[fd] else 0)
                poller.register(fd, events)
        for fd, events in poller.poll():
            source, peer = peers[fd]
            try:
                if events & (select.POLLERR | select.POLLHUP) and not events & select.POLLIN:
                    return
                if events & select.POLLOUT:
                    del buffers[fd][: source.send(buffers[fd])]
                if events & select.POLLIN and not buffers[peer.fileno()]:
                    _receive(source, peer, buffers, sending)
            except BlockingIOError:
                continue
            except OSError:
                return


def _receive(
    source: socket.socket, peer: socket.socket, buffers: dict[int, bytearray], sending: set[int]
) -> None:
    data = source.recv(CHUNK)
    if data:
        buffers[peer.fileno()] += data
    else:
        sending.discard(source.fileno())
        peer.shutdown(socket.SHUT_WR)
