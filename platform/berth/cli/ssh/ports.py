"""Forwarded connections (`ssh -L` and `-D`) to ports of the pod."""

import asyncio
import ipaddress

import asyncssh
from asyncssh.stream import SSHTCPStreamSession

from berth.cli.forwarding import PortConnection
from berth.cli.printing.text import printable
from berth.cli.ssh.sessions import PodChannels
from berth.client.errors import ClientError

ONLY_POD = "Only ports of the pod itself can be forwarded. Write localhost instead of {host}."


async def connect_port(channels: PodChannels, host: str, port: int) -> asyncssh.SSHTCPSession[bytes]:
    """Return a session that is connected to a port of the pod. Raises ChannelOpenError with the reason."""
    if not _is_own_address(host):
        reason = ONLY_POD.format(host=printable(host))
        raise asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, reason)
    try:
        connection = await channels.port(port).connect()
    except ClientError as error:
        raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, printable(str(error))) from None

    async def serve(reader: asyncssh.SSHReader[bytes], writer: asyncssh.SSHWriter[bytes]) -> None:
        try:
            await _forward(connection, reader, writer)
        finally:
            await connection.close()

    return SSHTCPStreamSession[bytes](serve)


async def _forward(
    connection: PortConnection, reader: asyncssh.SSHReader[bytes], writer: asyncssh.SSHWriter[bytes]
) -> None:
    serving = asyncio.create_task(connection.serve(reader, writer))
    closed = asyncio.create_task(writer.wait_closed())
    try:
        await asyncio.wait({serving, closed}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (serving, closed):
            task.cancel()
        await asyncio.gather(serving, closed, return_exceptions=True)
        writer.close()


def _is_own_address(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower() in ("", "localhost")
    return address.is_loopback or address.is_unspecified
