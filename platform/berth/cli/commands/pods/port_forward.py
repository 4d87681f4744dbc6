"""The `berth port-forward` command, which forwards local ports to ports of a pod."""

import asyncio
import ipaddress
import os
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.exits import invalid_value_error
from berth.cli.options.arguments import WorkloadArgument, open_client
from berth.cli.printing.text import print_message, printable

if TYPE_CHECKING:
    from berth.cli.forwarding import PodPort
    from berth.client.models.workloads import WorkloadDetail

PORT_MAX = 65_535


@dataclass(frozen=True, slots=True)
class PortMapping:
    """Local port (0 for any free port) and the pod's port, as a number or name."""

    local: int
    remote: int | str


def port_forward(
    workload: WorkloadArgument,
    ports: Annotated[
        list[str],
        typer.Argument(
            metavar="[LOCAL:]REMOTE...",
            help="Local port (0 for any free port) and the pod's port, as a number or name.",
        ),
    ],
    pod: Annotated[str | None, typer.Option(help="Pod, as ROLE-INDEX. Defaults to the first pod.")] = None,
    address: Annotated[str, typer.Option(help="Local address to listen on.")] = "127.0.0.1",
    expose: Annotated[
        bool, typer.Option("--expose", help="Accept unauthenticated connections from other machines.")
    ] = False,
) -> None:
    """Forward local ports to a pod of a running workload until you press Ctrl-C.

    \b
    berth port-forward train 8888
    berth port-forward train 9000:8888 6006 --pod worker-1
    berth port-forward lab 0:jupyter

    Connections go to a loopback address of the pod, or to its BERTH_HOST if nothing listens there. You need
    permission to control the workload.
    """
    mappings = [_parse_mapping(value) for value in ports]
    _check_address(address, expose)
    with open_client() as client:
        selected = client.workloads.find(workload)
    asyncio.run(_run(selected, mappings, pod, address))


def _parse_mapping(value: str) -> PortMapping:
    """Parse [LOCAL:]REMOTE. If REMOTE is a port name, LOCAL defaults to any free port."""
    local, colon, remote = value.rpartition(":")
    number = int(remote) if remote.isascii() and remote.isdecimal() else None
    is_valid = not colon or (local.isascii() and local.isdecimal() and int(local) <= PORT_MAX)
    if not is_valid or not remote or (number is not None and not 0 < number <= PORT_MAX):
        raise invalid_value_error(
            "ports", "is not a valid port", value, f"[LOCAL:]REMOTE with numbers up to {PORT_MAX}"
        )
    return PortMapping(int(local) if colon else number or 0, remote if number is None else number)


def _check_address(address: str, expose: bool) -> None:
    try:
        is_loopback = ipaddress.ip_address(address).is_loopback
    except ValueError:
        raise invalid_value_error(
            "--address", "is not a valid IP address", address, "an address such as 127.0.0.1"
        ) from None
    if not is_loopback and not expose:
        raise invalid_value_error(
            "--address", "accepts connections from other machines. Add --expose if you want this", address,
            "a loopback address such as 127.0.0.1",
        )  # fmt: skip


async def _run(
    workload: "WorkloadDetail", mappings: list[PortMapping], pod: str | None, address: str
) -> None:
    from berth.cli.forwarding import PodPort
    from berth.client.config import load_settings

    settings, servers = load_settings(), []
    for mapping in mappings:
        port = PodPort(settings, workload.id, mapping.remote, pod)
        problem = await port.check()
        server = await _listen(port, address, mapping.local)
        servers.append(server)
        name = f"port {mapping.remote} of {workload.handle}" + (f" {pod}" if pod else "")
        host, number = server.sockets[0].getsockname()[:2]
        print(f"{host}:{number} is forwarded to {printable(name)}", flush=True)
        if problem:
            print_message(f"{problem} Connections fail until it does.")
    await asyncio.gather(*(server.serve_forever() for server in servers))


async def _listen(port: "PodPort", address: str, number: int) -> asyncio.Server:
    from berth.client.errors import ClientError

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await port.serve(reader, writer)
        except ClientError as error:
            print_message(str(error))
            _reset_connection(writer)
        # The local program reset the connection, or Ctrl-C ended it.
        except (OSError, asyncio.CancelledError):
            _reset_connection(writer)
        finally:
            writer.close()

    try:
        return await asyncio.start_server(serve, address, number)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise invalid_value_error(
            "ports", f"is not available: {reason}", f"{address}:{number}", "a free port"
        ) from None


def _reset_connection(writer: asyncio.StreamWriter) -> None:
    """Reset the connection, because a normal close would look like the end of the stream."""
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()
