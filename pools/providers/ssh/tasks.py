"""Tasks on an SSH host: scan its host key, detect its properties, install or uninstall the agent.

Every task can be repeated, even after an interruption.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pools.providers.ssh.connection import Connection, connect, scan_host_key
from pools.providers.ssh.endpoint import Endpoint, SshError, SshErrorKind, Timeouts
from pools.providers.ssh.scripts import (
    HostFacts,
    install_script,
    parse_facts,
    probe_script,
    root_shell_command,
    uninstall_script,
)
from pools.providers.ssh.settings import DEFAULT_HOME

INSTALL_SECONDS = 180.0
UNINSTALL_SECONDS = 120.0
TIMEOUTS = Timeouts()


@dataclass(frozen=True, slots=True)
class Installation:
    """Agent to install on a host, with its settings and the certificates of Berth's server."""

    home: str
    agent: bytes = field(repr=False)
    env: Mapping[str, str] = field(repr=False)
    ca: str = ""


async def scan(endpoint: Endpoint, timeouts: Timeouts = TIMEOUTS) -> str:
    """Return the host key that the host presents. Raises SshError."""
    return await scan_host_key(endpoint, timeouts)


async def detect_properties(endpoint: Endpoint, home: str, timeouts: Timeouts = TIMEOUTS) -> HostFacts:
    """Return the host's properties without changing anything. Raises SshError."""
    async with connect(endpoint, timeouts) as connection:
        return await _probe(connection, endpoint, home)


async def install(
    endpoint: Endpoint, order: Installation, installation: str, timeouts: Timeouts = TIMEOUTS
) -> HostFacts:
    """Check the host, install the agent, and let the machine join its pool. Raises SshError."""
    async with connect(endpoint, timeouts) as connection:
        facts = await _probe(connection, endpoint, order.home)
        if problems := facts.problems(installation):
            raise SshError(SshErrorKind.UNSUITABLE, f"{endpoint.name}: {'; '.join(problems)}")
        script = install_script(order.home, order.agent, order.env, order.ca)
        finished = await connection.run(root_shell_command(facts), script.encode(), INSTALL_SECONDS)
        finished.raise_if_failed(f"installing the agent on {endpoint.name}")
        return facts


async def uninstall(
    endpoint: Endpoint, home: str, installation: str, timeouts: Timeouts = TIMEOUTS
) -> HostFacts:
    """Delete the agent and its files if this Berth installation installed the agent. Raises SshError."""
    async with connect(endpoint, timeouts) as connection:
        facts = await _probe(connection, endpoint, home)
        if not facts.root:
            raise SshError(SshErrorKind.UNSUITABLE, f"{endpoint.name}: {facts.problems(installation)[0]}")
        script = uninstall_script(home, installation)
        finished = await connection.run(root_shell_command(facts), script.encode(), UNINSTALL_SECONDS)
        finished.raise_if_failed(f"uninstalling the agent on {endpoint.name}")
        return facts


async def _probe(connection: Connection, endpoint: Endpoint, home: str) -> HostFacts:
    finished = await connection.run("sh -s", probe_script(home, DEFAULT_HOME).encode())
    return parse_facts(finished.raise_if_failed(f"measuring {endpoint.name}"))
