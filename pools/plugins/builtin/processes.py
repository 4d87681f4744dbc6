"""Set the standard environment variables for rank and world size."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pools.plugins.facts import InstanceInfo


@contextmanager
def set_variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables inside a block, and restore them afterwards."""
    previous = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in previous.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def rank_variables(info: InstanceInfo) -> dict[str, str]:
    """Return the environment variables for a process's rank and for the rendezvous."""
    return {
        "MASTER_ADDR": info.head_address,
        "MASTER_PORT": str(info.head_port),
        "RANK": str(info.rank),
        "WORLD_SIZE": str(info.world_size),
        "LOCAL_RANK": str(info.worker_index),
        "LOCAL_WORLD_SIZE": str(info.workers_per_node),
    }
