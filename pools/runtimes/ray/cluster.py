"""Names and addresses of Ray nodes."""

from __future__ import annotations

import re
from dataclasses import dataclass

JOBS_PORT = 8265  # on heads: Ray's jobs API
GCS_PORT = 6379  # on heads: where raylets join
AGENT_PORT = 8365  # on every node
NODE_LABEL = "berth-node"
_LABEL_LENGTH = 60


@dataclass(frozen=True)
class NodeAt:
    """A node of a pool that runs Ray. `secret` is its cluster's: Ray and the agents ask for it.

    `address` is empty until it is known. Node 0 is the head.
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


def label_of(instance_id: str) -> str:
    """What Ray knows the node by; a label's value may not hold everything that an id may."""
    return "n" + re.sub(r"[^A-Za-z0-9_.-]", "-", instance_id)[-_LABEL_LENGTH:] + "n"


def device_resource(index: int) -> str:
    """Of each device of a node Ray has one; so it lets nobody have more of a device than there is."""
    return f"berth-device-{index}"
