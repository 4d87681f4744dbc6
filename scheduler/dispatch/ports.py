"""Here the first pod of an interactive workload is given the numbers of the ports that it opens to people."""

import logging
from collections.abc import Iterable
from typing import Any

from berth.core.spec.ports import PortSpec, port_variable
from berth.db.lease import fenced
from pools.joining.secrets import for_port
from pools.runtimes.base import RuntimeFailure
from projects.models import Pod
from scheduler.points import outside_transactions, point
from scheduler.post import Post

log = logging.getLogger(__name__)


def give_ports(pods: Iterable[Pod], post: Post) -> None:
    """For those that have none yet: an attempt keeps its own for ever, another attempt gets others."""
    outside_transactions()
    lacking = [pod for pod in pods if opens_ports(pod) and pod.ports is None]
    found = {pod.pk: ports for pod in lacking if (ports := _free_ports(pod, post)) is not None}
    if not found:
        return
    with fenced(post.held):
        for pod in Pod.objects.select_for_update().filter(pk__in=found, ports__isnull=True).order_by("pk"):
            Pod.objects.filter(pk=pod.pk).update(ports=found[pod.pk])
    point("dispatch.ports")
    given = dict(Pod.objects.filter(pk__in=found).values_list("pk", "ports"))
    for pod in lacking:
        pod.ports = given.get(pod.pk)


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
    runtime = post.runtimes(pod.node.pool)
    found: dict[str, Any] = {}
    for each in pod.workload.spec["ports"]:
        try:
            wanted = PortSpec.model_validate(each)
            address, number = runtime.rendezvous()
        except (RuntimeFailure, LookupError, OSError, ValueError) as error:
            log.warning("no port for pod %s: %s", pod.pk, error)
            return None
        found[wanted.name] = {"address": address, "port": wanted.port or number}
    return found
