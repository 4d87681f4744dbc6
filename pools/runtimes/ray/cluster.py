"""Names and addresses of Ray nodes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pools.runtimes.base import PodSpec

JOBS_PORT = 8265  # port of Ray's jobs API on head nodes
GCS_PORT = 6379  # port of the head node that raylets connect to
AGENT_PORT = 8365  # port of Berth's agent on every node
NODE_LABEL = "berth-node"
_LABEL_LENGTH = 60


@dataclass(frozen=True)
class RayNode:
    """Node of a Ray pool.

    Node 0 is the head node. `secret` is the cluster's secret, which Ray and the agents require. `address` is
    empty until it is known.
    """

    instance_id: str
    pool: str
    ordinal: int
    address: str
    devices: tuple[str, ...]
    secret: str

    @property
    def is_head(self) -> bool:
        return self.ordinal == 0


def node_label(instance_id: str) -> str:
    """Return the node's label in Ray: its instance ID, with invalid characters replaced."""
    return "n" + re.sub(r"[^A-Za-z0-9_.-]", "-", instance_id)[-_LABEL_LENGTH:] + "n"


def device_resource(index: int) -> str:
    """Return the name of the custom Ray resource that represents one device."""
    return f"berth-device-{index}"


def device_resources(spec: PodSpec, node: RayNode) -> dict[str, float]:
    """Return the Ray resources that the pod's job requests, so that Ray reserves exactly the pod's
    devices.
    """
    names = list(node.devices)
    numbers = [names.index(name) if name in names else int(name) for name in spec.devices]
    return {device_resource(number): spec.device_milli / 1000 for number in numbers}
