"""SSH server for one pod, on the stdin and stdout of this process.

The server needs no key, because only its parent process can connect. The user's Berth token determines the
permissions.
"""

import asyncio
import os
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress

import asyncssh

from berth.cli.printing.text import printable
from berth.cli.ssh.ports import connect_port
from berth.cli.ssh.sessions import PodChannels, Process
from berth.cli.ssh.settings import SshFiles
from berth.client.aio.workloads.channels import AsyncChannel
from berth.client.channels import OUTPUT, STATUS
from berth.client.errors import ClientError, Unreachable

BLOCK = 256 * 1024
# The connection is a pipe on this machine, so the fastest cipher is sufficient.
CIPHERS = ["aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "chacha20-poly1305@openssh.com"]


class _Server(asyncssh.SSHServer):
    def __init__(self, channels: PodChannels) -> None:
        self._channels = channels

    def begin_auth(self, username: str) -> bool:
        return False

    def session_requested(self) -> Process:
        return Process(self._channels)

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> Awaitable[asyncssh.SSHTCPSession[bytes]]:
        return connect_port(self._channels, dest_host, dest_port)


async def serve(channels: PodChannels, files: SshFiles) -> None:
    """Serve one SSH connection until either side closes it.

    The connection is also closed when the pod ends or the user loses access. Raises ClientError if access is
    denied.
    """
    async with channels.open({"ssh": True}) as channel:
        channels.mark = await _receive_channel_mark(channel)
        ours, theirs = socket.socketpair()
        pumps = [_start_thread(_copy_input, theirs), _start_thread(_copy_output, theirs)]
        try:
            connection = await _accept(ours, channels, files)
        except (OSError, asyncssh.Error):  # the client disconnected before the handshake was complete
            ours.close()
            return
        watcher = asyncio.create_task(_watch(channel, connection, channels))
        await connection.wait_closed()
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)
    await asyncio.to_thread(pumps[1].join)


async def _receive_channel_mark(channel: AsyncChannel) -> str:
    kind, mark = await channel.receive()
    if kind != OUTPUT:
        raise Unreachable(channel.failure or "The pod has ended.")
    return mark.decode("ascii")


async def _accept(
    connection: socket.socket, channels: PodChannels, files: SshFiles
) -> asyncssh.SSHServerConnection:
    return await asyncssh.run_server(
        connection,
        server_factory=lambda: _Server(channels),
        server_host_keys=[files.host_key],
        encoding=None,
        line_editor=False,
        agent_forwarding=False,
        encryption_algs=CIPHERS,
        compression_algs=None,
        gss_host=None,
    )


async def _watch(
    channel: AsyncChannel, connection: asyncssh.SSHServerConnection, channels: PodChannels
) -> None:
    try:
        while (await channel.receive())[0] != STATUS:
            pass
        reason = "The pod has ended."
    except ClientError as error:
        reason = str(error)
    channels.end_sessions(reason)
    connection.disconnect(asyncssh.DISC_BY_APPLICATION, printable(reason))


def _start_thread(copy: Callable[[socket.socket], None], peer: socket.socket) -> threading.Thread:
    thread = threading.Thread(target=copy, args=(peer,), daemon=True)
    thread.start()
    return thread


def _copy_input(peer: socket.socket) -> None:
    with suppress(OSError):
        while data := os.read(0, BLOCK):
            peer.sendall(data)
    with suppress(OSError):
        peer.shutdown(socket.SHUT_WR)


def _copy_output(peer: socket.socket) -> None:
    with suppress(OSError):
        while data := peer.recv(BLOCK):
            while data:
                data = data[os.write(1, data) :]
