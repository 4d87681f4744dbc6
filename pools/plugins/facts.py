"""Data that plugin hooks receive about the pool, the worker and the client's session."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Cluster:
    """Description of a pool for plugin hooks.

    `head_address` is empty if there are no nodes. `node_count` is the desired number of nodes. `cuda` is true
    if programs can use NVIDIA GPUs. `gpus_per_node` includes simulated GPUs.
    """

    name: str
    head_address: str = ""
    node_count: int = 1
    gpus_per_node: int = 0
    gpu_model: str = ""
    cuda: bool = False


@dataclass(frozen=True, slots=True)
class InstanceInfo:
    """Position of a worker among all workers of a session.

    Indexes start at 0. `node_index` is the index of the worker's node among `node_count` nodes, and
    `worker_index` is the worker's index among the node's `workers_per_node` workers. The worker sees `gpus`
    GPUs. The rendezvous address is `head_address:head_port`.
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
        """Rank among all workers. If each node has one worker, the rank equals the node's index."""
        return self.node_index * self.workers_per_node + self.worker_index

    @property
    def world_size(self) -> int:
        return self.node_count * self.workers_per_node

    @property
    def is_head(self) -> bool:
        return self.rank == 0


class ClientPool(Protocol):
    """A client's open session on a pool, as passed to the hook `around_client`."""

    def parallel(self) -> AbstractContextManager[object]:
        """Return a context manager that runs joblib's `Parallel(n_jobs=-1)` on the session's workers."""
        ...
