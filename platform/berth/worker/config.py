"""Worker configuration, read from the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from pools.plugins.facts import InstanceInfo

SIGN_OFF_MARGIN = 5.0  # seconds reserved at the end of the grace period for signing off from the server


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    address: str
    secret: str
    node: int
    nodes: int
    head_address: str
    head_port: int
    gpus: int
    grace_seconds: float

    def instance(self, slot: int = 0, slots: int = 1) -> InstanceInfo:
        return InstanceInfo(
            node_index=self.node, node_count=self.nodes, worker_index=slot, workers_per_node=slots,
            head_address=self.head_address, head_port=self.head_port, gpus=self.gpus,
        )  # fmt: skip


def read_config(environ: Mapping[str, str] = os.environ) -> WorkerConfig:
    """Read the configuration from the environment. Raises KeyError or ValueError outside a session pod."""
    return WorkerConfig(
        address=environ["BERTH_URL"].rstrip("/"),
        secret=environ["BERTH_SESSION_SECRET"],
        node=int(environ["RANK"]),
        nodes=int(environ["WORLD_SIZE"]),
        head_address=environ["MASTER_ADDR"],
        head_port=int(environ["MASTER_PORT"]),
        gpus=int(environ["BERTH_GPUS"]),
        grace_seconds=max(0.0, float(environ.get("BERTH_GRACE_SECONDS", "30")) - SIGN_OFF_MARGIN),
    )
