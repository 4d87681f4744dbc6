"""Assign port numbers to interactive workloads."""

import logging
from collections.abc import Collection, Iterable
from typing import Any

from berth.core.spec.ports import PortSpec, port_variable
from pools.joining.secrets import for_port
from pools.runtimes.base import Runtime, RuntimeFailure
from projects.models import Pod
from scheduler.dispatch.given_once import give_once
from scheduler.post import Post

log = logging.getLogger(__name__)


MOST_TRIES = 20  # until a port is none that the same pod has already


def give_ports(pods: Iterable[Pod], post: Post) -> None:
    give_once("ports", filter(opens_ports, pods), lambda pod: _free_ports(pod, post), post)


def opens_ports(pod: Pod) -> bool:
    return pod.rank == 0 and bool(pod.workload.spec.get("ports"))


def told_of_ports(pod: Pod) -> dict[str, str]:
    """Where it is to listen, and the secret that every request of Berth's carries."""
    if not pod.ports:
        return {}
    places = list(pod.ports.items())
    first = places[0][1]
    return {
        "BERTH_HOST": str(first["address"] or pod.node.address),
        "BERTH_PORT": str(first["port"]),
        **{port_variable(name): str(place["port"]) for name, place in places},
        "BERTH_PORT_SECRET": for_port(str(pod.pk)),
    }


def _free_ports(pod: Pod, post: Post) -> dict[str, Any] | None:
    """Numbers that the document names stand; each of the others is another one."""
    runtime = post.runtimes(pod.node.pool)
    try:
        wanted = [PortSpec.model_validate(each) for each in pod.workload.spec["ports"]]
        taken = {each.port for each in wanted if each.port}
        found: dict[str, Any] = {}
        for each in wanted:
            address, number = _another(runtime, taken)
            taken.add(number)
            found[each.name] = {"address": address, "port": each.port or number}
    except (RuntimeFailure, LookupError, OSError, ValueError) as error:
        log.warning("no port for pod %s: %s", pod.pk, error)
        return None
    return found


def _another(runtime: Runtime, taken: Collection[int]) -> tuple[str, int]:
    for _ in range(MOST_TRIES):
        address, number = runtime.rendezvous()
        if number not in taken:
            return address, number
    raise LookupError(f"{MOST_TRIES} ports in turn were taken by the pod itself")
