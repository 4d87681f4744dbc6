"""Assign port numbers to interactive workloads."""

import logging
from collections.abc import Collection, Iterable
from typing import Any

from berth.core.spec.sections.ports import PortSpec, port_variable
from pools.joining.secrets import port_secret
from pools.runtimes.base import Runtime, RuntimeFailure
from pools.runtimes.capabilities import runtime_capabilities
from projects.models import Pod
from scheduler.loop.context import SchedulerContext
from scheduler.loop.dispatch.starts.assign_once import assign_missing_values

log = logging.getLogger(__name__)


ALL_ADDRESSES = "0.0.0.0"  # noqa: S104
MAX_ATTEMPTS = 20  # maximum number of attempts to find a port that the pod does not use yet


def assign_ports(pods: Iterable[Pod], context: SchedulerContext) -> None:
    assign_missing_values(
        "ports", filter(has_ports, pods), lambda pod: _find_free_ports(pod, context), context
    )


def has_ports(pod: Pod) -> bool:
    return pod.rank == 0 and bool(pod.workload.spec.get("ports"))


def port_env(pod: Pod) -> dict[str, str]:
    """Return the environment variables that contain the address and the port numbers to listen on."""
    if not pod.ports:
        return {}
    places = list(pod.ports.items())
    first = places[0][1]
    return {
        "BERTH_HOST": _listening_address(pod, str(first["address"])),
        "BERTH_PORT": str(first["port"]),
        **{port_variable(name): str(place["port"]) for name, place in places},
    }


def _listening_address(pod: Pod, address: str) -> str:
    """Return the address that the pod listens on. A pod with its own address listens on all interfaces."""
    if runtime_capabilities(pod.node.pool.runtime).pods_have_addresses:
        return ALL_ADDRESSES
    return address or str(pod.node.address)


def port_secret_env(pod: Pod) -> dict[str, str]:
    """Return the environment variable with the secret that authenticates requests from Berth.

    A pod without ports gets none.
    """
    return {"BERTH_PORT_SECRET": port_secret(str(pod.pk))} if pod.ports else {}


def _find_free_ports(pod: Pod, context: SchedulerContext) -> dict[str, Any] | None:
    """Choose an address and a port number for each declared port, or return None if that is not possible."""
    runtime = context.runtimes(pod.node.pool)
    try:
        specs = [PortSpec.model_validate(document) for document in pod.workload.spec["ports"]]
        used = {spec.port for spec in specs if spec.port}
        ports: dict[str, Any] = {}
        for spec in specs:
            address, number = _find_unused_port(runtime, used)
            used.add(number)
            ports[spec.name] = {"address": address, "port": spec.port or number}
    except (RuntimeFailure, LookupError, OSError, ValueError) as error:
        log.warning("no port for pod %s: %s", pod.pk, error)
        return None
    return ports


def _find_unused_port(runtime: Runtime, used: Collection[int]) -> tuple[str, int]:
    for _ in range(MAX_ATTEMPTS):
        address, number = runtime.rendezvous()
        if number not in used:
            return address, number
    raise LookupError(f"all {MAX_ATTEMPTS} ports offered by the runtime are already used by the pod")
