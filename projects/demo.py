"""The demo organization: two departments, four projects, a user for each role, and one pool.

Each department has a quota of 4 GPUs. The pool `local` scales from zero to four nodes with two GPUs each. On
a machine with a different number of GPUs, the pool and the quotas are adjusted to that number. The project
vision borrows idle quota, and the project ads can reclaim its own four GPUs.
"""

import math
from collections.abc import Mapping
from typing import Any

from pools.providers.hardware import Machine

GPUS = 8  # sum of department quotas; also the pool's GPU count on machines without GPUs

POOL: Mapping[str, Any] = {
    "name": "local",
    "provider": "local",
    "runtime": "local",
    "nodes_min": 0,
    "cpu_milli": 4000,
    "memory_mib": 4096,
}

DEPARTMENTS: Mapping[str, Mapping[str, Any]] = {
    "research": {"title": "Research", "quota": {"gpu": 4, "weight": 1}},
    "product": {"title": "Product", "quota": {"gpu": 4, "weight": 1}},
}

PROJECTS: Mapping[str, Mapping[str, Any]] = {
    "vision": {"department": "research", "title": "Computer vision", "quota": {"gpu": 2, "weight": 2}},
    "speech": {"department": "research", "title": "Speech", "rank": 1, "quota": {"gpu": 2, "weight": 1}},
    "ads": {
        "department": "product",
        "title": "Ad ranking",
        "quota": {"gpu": 4, "weight": 1, "limit": {"gpu": 6}},
    },
    "search": {"department": "product", "title": "Search", "quota": {"gpu": 0, "weight": 1}},
}

# Role and scope of each user. Unlisted departments and projects have no members.
PEOPLE: Mapping[str, tuple[str, str]] = {
    "bob": ("department_admin", "research"),
    "carol": ("project_admin", "vision"),
    "dave": ("member", "vision"),
    "erin": ("viewer", "vision"),
    "gina": ("member", "speech"),
    "grace": ("member", "ads"),
    "henry": ("project_admin", "search"),
}


def pool_settings(machine: Machine) -> Mapping[str, Any]:
    """Return the settings of a pool that divides the machine and its GPUs equally among its nodes.

    Without real GPUs, nodes have the size in `POOL`.
    """
    gpus = len(machine.devices) or GPUS
    gpus_per_node = 1 if gpus % 2 else 2
    nodes = gpus // gpus_per_node
    settings = {**POOL, "nodes_max": nodes, "gpus_per_node": gpus_per_node}
    models = {device.model for device in machine.devices if device.model}
    if not models:
        return settings
    return {
        **settings,
        "gpu_model": models.pop() if len(models) == 1 else "",
        "gpu_memory_mib": min(device.memory_mib for device in machine.devices),
        "cpu_milli": machine.cpu_milli // nodes,
        # The remaining memory is for Berth and its database.
        "memory_mib": machine.memory_mib * 9 // 10 // nodes,
    }


def scale_quota(quota: Mapping[str, Any], gpus: int) -> Mapping[str, Any]:
    """Scale a demo quota to a cluster with `gpus` GPUs.

    Limits are rounded up, so that a one-GPU workload always fits.
    """
    scaled = {**quota, "gpu": quota["gpu"] * gpus / GPUS}
    if "limit" in quota:
        scaled["limit"] = {"gpu": math.ceil(quota["limit"]["gpu"] * gpus / GPUS)}
    return scaled
