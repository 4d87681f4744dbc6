"""Facts passed to plugin hooks: pool, process and client."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Cluster:
    """The facts of a pool. `head_address` is empty while no node is there, `node_count` what is wanted now.

    `cuda`: its nodes have NVIDIA GPUs that programs can use. GPUs that are only declared, as on a machine
    for tests, are counted in `gpus_per_node`, and `cuda` is false.
    """

    name: str
    head_address: str = ""
    node_count: int = 1
    gpus_per_node: int = 0
    gpu_model: str = ""
    cuda: bool = False


@dataclass(frozen=True, slots=True)
class InstanceInfo:
    """Where a process stands among those that work together: node `node_index` of `node_count`, counted
    from 0, and worker `worker_index` of the `workers_per_node` on that node. `gpus` is how many this worker
    sees. Processes that must meet do so at `head_address`, the first node's, and `head_port`.
    """

    node_index: int = 0
    node_count: int = 1
    worker_index: int = 0
    workers_per_node: int = 1
    head_address: str = "127.0.0.1"
    head_port: int = 29500
    gpus: int = 0

    @property
    def rank(self) -> int:
        """Unique among all workers; with one worker on each node, the node's index."""
        return self.node_index * self.workers_per_node + self.worker_index

    @property
    def world_size(self) -> int:
        return self.node_count * self.workers_per_node

    @property
    def is_head(self) -> bool:
        return self.rank == 0


class ClientPool(Protocol):
    """What `around_client` is handed: the client's open session on a pool."""

    def parallel(self) -> AbstractContextManager[object]:
        """While it is open, joblib's `Parallel(n_jobs=-1)` in this process runs on the session's workers."""
        ...
