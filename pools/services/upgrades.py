"""Upgrade the agents of nodes to the version that the server provides."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from django.db import transaction

from berth.core.errors import Conflict
from pools.joining.package import agent_package, agent_version
from pools.models import Node
from pools.models.node import HOSTING, PENDING
from pools.signals import changed


@dataclass(frozen=True, slots=True)
class AgentRelease:
    """Agent program that this server provides, identified by its version and the hash of its file."""

    version: str
    sha256: str


def upgrade_agent(*, actor: Any, node: Node) -> None:
    """Request an upgrade of the node's agent. Its pods keep running. Idempotent.

    Raises Conflict if the node has no agent or its agent is current.
    """
    installed = str(node.inventory.get("agent_version", ""))
    if not installed or node.state not in (*PENDING, *HOSTING):
        raise Conflict(
            f"Node {node.name} has no agent that reports to this server, so there is nothing to upgrade."
        )
    if installed == agent_version():
        raise Conflict(f"The agent of node {node.name} already has the current version, {installed}.")
    with transaction.atomic():
        if (
            Node.objects.filter(pk=node.pk)
            .exclude(upgrade_to=agent_version())
            .update(upgrade_to=agent_version())
        ):
            before, after = {"version": installed}, {"version": agent_version()}
            changed.send(Node, actor=actor, action="upgrade_agent", obj=node, before=before, after=after)


def is_outdated(inventory: Mapping[str, Any]) -> bool:
    """Return whether the machine's agent has a different version than this server provides."""
    return bool(inventory) and inventory.get("agent_version") != agent_version()


def release_to_install(node: Node | None, installed: str) -> AgentRelease | None:
    """Return the agent release that the reporting machine should install, or None.

    A machine without a node has no pods, so its agent is always upgraded.
    """
    current = agent_version()
    is_requested = node is None or node.upgrade_to == current
    if not installed or installed == current or not is_requested:
        return None
    return AgentRelease(current, sha256(agent_package()).hexdigest())
