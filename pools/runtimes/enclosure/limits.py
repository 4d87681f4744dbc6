"""Resource limits that this machine can enforce on pods, and their fields in a pod spec."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from pools.runtimes.base import PodSpec
from pools.runtimes.enclosure.levels import LIMITS_VARIABLE, Isolation
from pools.runtimes.shim.limits.cgroups import CPU, MEMORY, PROCESSES, CannotLimit, Cgroups
from pools.runtimes.shim.records import Record

MIB = 1024 * 1024
# Maximum number of processes and threads per pod, as protection against fork bombs.
PROCESSES_MAX = 16_384
DISK_SECONDS = 30.0  # seconds between measurements of a pod's disk usage
_PROBES = {MEMORY: 16 * MIB, CPU: 1000, PROCESSES: 16}


class UnenforcedLimit(Exception):
    """Raised if a workload's document sets a limit that this machine cannot enforce."""


def add_enforceable_limits(isolation: Isolation, environ: Mapping[str, str] = os.environ) -> Isolation:
    """Add the resource limits that this machine can enforce. Each limit is tested with an empty control
    group.
    """
    if environ.get(LIMITS_VARIABLE) == "off":
        return replace(isolation, limits_obstacle=f"{LIMITS_VARIABLE} is off.", ignores_limits=True)
    enforced, obstacle = [], ""
    for resource, limit in _PROBES.items():
        group = Cgroups(f"berth-probe-{os.getpid()}", {resource: limit})
        try:
            group.locate()
            group.create()
            enforced.append(resource)
        except CannotLimit as error:
            obstacle = f"The agent cannot create control groups: {error}."
        finally:
            group.remove()
    return replace(isolation, limits=tuple(enforced), limits_obstacle=obstacle)


def limit_fields(spec: PodSpec, isolation: Isolation) -> Record:
    """Return the pod spec fields for the pod's resource limits. Raises UnenforcedLimit."""
    declared = {MEMORY: spec.memory_limit_mib * MIB, CPU: spec.cpu_limit_milli}
    missing = [
        name
        for name, limit in declared.items()
        if limit and name not in (*isolation.limits, *spec.optional_limits)
    ]
    if missing and not isolation.ignores_limits:
        raise UnenforcedLimit(
            f"this node cannot enforce the {missing[0]} limit in the document: {isolation.limits_obstacle} "
            f"Remove the limit, or set {LIMITS_VARIABLE}=off on the node to ignore limits"
        )
    limits = {**declared, PROCESSES: PROCESSES_MAX}
    # With a limit of 0, usage is measured but not limited.
    fields = [(f"limit_{name}", str(limits[name])) for name in isolation.limits]
    if spec.workspace_limit_mib:
        fields += [("limit_disk", str(spec.workspace_limit_mib * MIB)), ("disk_interval", str(DISK_SECONDS))]
    return fields
