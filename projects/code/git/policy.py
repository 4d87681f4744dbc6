"""Policy for fetching code from Git: allowed hosts, limits, and the known_hosts and CA files."""

import ipaddress
import socket
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from berth.core.spec.sections.git import GitAddress
from projects.code.git.errors import GitFailure, GitRejection
from projects.delivering.destination import describe_rejection, find_rejection

EVERYTHING = tuple(ipaddress.ip_network(network) for network in ("0.0.0.0/0", "::/0"))


@dataclass(frozen=True, slots=True)
class GitPolicy:
    """Installation-wide policy for fetches.

    Hosts at public addresses are allowed. `hosts` lists other allowed hosts, as HOST or HOST:PORT. Cloud
    metadata services and link-local addresses are never allowed. Sizes are in bytes, and times in seconds.
    """

    hosts: frozenset[str] = frozenset()
    known_hosts: Path | None = None
    ca_file: Path | None = None
    seconds: float = 300.0
    transfer_size: int = 2**30
    size: int = 256 * 2**20
    files: int = 10_000

    def allows_private_address(self, address: GitAddress) -> bool:
        """Return whether an admin has allowed the host, so that its address may be private.

        An entry without a port applies only to the default port.
        """
        default = 443 if address.transport == "https" else 22
        entries = {f"{address.host}:{address.effective_port}"}
        if address.effective_port == default:
            entries.add(address.host)
        return bool(entries & self.hosts)


def resolve_host(address: GitAddress, policy: GitPolicy) -> str:
    """Validate all of the host's IP addresses, and return the one to connect to.

    Raises GitRejection for a forbidden host, or GitFailure if the name does not resolve.
    """
    networks: Collection[ipaddress.IPv4Network | ipaddress.IPv6Network] = (
        EVERYTHING if policy.allows_private_address(address) else ()
    )
    try:
        entries = socket.getaddrinfo(address.host, address.effective_port, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise GitRejection(f"{address.host} is not a valid host name. Correct `url`.") from None
    except OSError as error:
        raise GitFailure(f"The host {address.host} cannot be found: {error.strerror or error}.") from None
    addresses = [str(entry[4][0]) for entry in entries]
    for text in addresses:
        if (reason := find_rejection(ipaddress.ip_address(text.partition("%")[0]), networks)) is not None:
            raise GitRejection(
                f"{describe_rejection(address.host, text, reason)}. "
                "An admin can list hosts at private addresses in BERTH_GIT_HOSTS."
            )
    return addresses[0]
