"""Check a new SSH pool's hosts without changing anything on them."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pools.models import NodePool, SshHost
from pools.providers.base import Shape
from pools.providers.preview import Finding, Preview, PreviewedNode, error, warning
from pools.providers.ssh import tasks
from pools.providers.ssh.endpoint import Endpoint, SshError, SshErrorKind, Timeouts, fingerprint
from pools.providers.ssh.scripts import HostFacts
from pools.providers.ssh.settings import ssh_settings
from pools.services.ssh.keys import PoolKeys

AT_ONCE = 100
WITHIN = 20.0  # time limit in seconds for all hosts, because a user is waiting for the preview
TIMEOUTS = Timeouts(connect=10.0, command=30.0)
ACCEPT = "Compare the fingerprints with those of the hosts, then pin the keys with `--accept-host-keys`."


@dataclass(frozen=True, slots=True)
class ExaminedHost:
    """Result of checking one host: its properties, the host key that it presented, or the error."""

    facts: HostFacts | None = None
    scanned_key: str = ""
    error: SshError | None = None


def examine(pool: NodePool, shape: Shape, keys: PoolKeys, installation: str, timeouts: Timeouts) -> Preview:
    """Return a preview that lists the hosts as machines, with any obstacles to their use."""
    hosts = ssh_settings(pool.provider_settings).resolved_hosts()
    results = asyncio.run(_examine_all(hosts, keys.endpoint, timeouts))
    pools = _pools_by_endpoint(pool)
    nodes = tuple(
        _previewed_node(host, result, shape, installation, pools.get(_endpoint_key(host), ""))
        for host, result in zip(hosts, results, strict=True)
    )
    source = f"SSH hosts: {len(hosts)}"
    return Preview(source, nodes, tuple(_findings(hosts, results, nodes)))


async def _examine_all(
    hosts: Sequence[Mapping[str, Any]], endpoint: Callable[[Mapping[str, Any]], Endpoint], timeouts: Timeouts
) -> list[ExaminedHost]:
    slots = asyncio.Semaphore(AT_ONCE)
    deadline = asyncio.get_running_loop().time() + WITHIN

    async def examine_host(host: Mapping[str, Any]) -> ExaminedHost:
        try:
            async with asyncio.timeout_at(deadline), slots:
                to = endpoint(host)
                if not host["host_key"]:
                    return ExaminedHost(scanned_key=await tasks.scan(to, timeouts))
                return ExaminedHost(await tasks.detect_properties(to, host["home"], timeouts))
        except SshError as failure:
            return ExaminedHost(scanned_key=failure.presented, error=failure)
        except TimeoutError:
            message = f"{host['address']} could not be examined within the {WITHIN:g} s of the preview"
            return ExaminedHost(error=SshError(SshErrorKind.TIMEOUT, message))

    return list(await asyncio.gather(*map(examine_host, hosts)))


def _previewed_node(
    host: Mapping[str, Any], result: ExaminedHost, shape: Shape, installation: str, pool: str
) -> PreviewedNode:
    facts = result.facts or HostFacts()
    total = Shape(facts.cpus * 1000, facts.memory_mib, len(facts.gpus), facts.gpus[0] if facts.gpus else "")
    if result.error is not None:
        obstacle = result.error.message
    elif result.facts is None:
        obstacle = f"the host key {fingerprint(result.scanned_key)} has not been accepted"
    elif problems := facts.problems(installation):
        obstacle = "; ".join(problems)
    elif pool:
        obstacle = f"the host belongs to pool {pool}"
    else:
        obstacle = _too_small_reason(total, shape)
    presented = result.scanned_key if not host["host_key"] else ""
    return PreviewedNode(
        host["name"], total, obstacle=obstacle, details=_host_details(result.facts), host_key=presented
    )


def _too_small_reason(total: Shape, shape: Shape) -> str:
    short = [
        name
        for name, has, needs in (
            ("GPUs", total.gpus, shape.gpus), ("cores", total.cpu_milli, shape.cpu_milli),
            ("memory", total.memory_mib, shape.memory_mib),
        )
        if has < needs
    ]  # fmt: skip
    return f"the host has less than a pool node needs: {', '.join(short)}" if short else ""


def _host_details(facts: HostFacts | None) -> str:
    if facts is None:
        return ""
    root = {"root": "root", "sudo": "sudo"}.get(facts.root, "no root")
    manager = "systemd" if facts.has_systemd else "no systemd"
    parts = [facts.os, facts.architecture, f"Python {facts.python or 'missing'}", manager, root]
    return ", ".join([*filter(None, parts), f"{facts.disk_free_mib // 1024} GiB of disk free"])


def _findings(
    hosts: Sequence[Mapping[str, Any]], results: Sequence[ExaminedHost], nodes: Sequence[PreviewedNode]
) -> list[Finding]:
    findings = []
    if not hosts:
        findings.append(warning("The pool has no hosts.", "List them in provider_settings.hosts."))
    elif all(node.obstacle for node in nodes):
        findings.append(error("None of the hosts can be used.", "See the reasons above."))
    if unpinned := [node.name for node in nodes if node.host_key]:
        findings.append(warning(f"The host keys of {_join_names(unpinned)} have not been accepted.", ACCEPT))
    plain = [
        host["name"]
        for host, result in zip(hosts, results, strict=True)
        if result.facts is not None and not result.facts.has_systemd
    ]
    if plain:
        message = f"{_join_names(plain)} {'does' if len(plain) == 1 else 'do'} not run systemd."
        findings.append(warning(message, "After a reboot, Berth starts the agent there again over SSH."))
    return findings


def _join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _endpoint_key(host: Mapping[str, Any]) -> tuple[str, int, str]:
    return host["address"], host["port"], host["bastion"]["address"] if host["bastion"] else ""


def _pools_by_endpoint(pool: NodePool) -> Mapping[tuple[str, int, str], str]:
    rows = SshHost.objects.exclude(pool__name=pool.name).select_related("pool")
    return {(row.address, row.port, row.through): row.pool.name for row in rows}
