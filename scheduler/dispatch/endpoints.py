"""Assign an address and port to each pod of a service before it starts."""

import logging
from collections.abc import Iterable

from pools.runtimes.base import RuntimeFailure
from projects.models import Pod, WorkloadKind
from scheduler.dispatch.given_once import give_once
from scheduler.post import Post

log = logging.getLogger(__name__)


def give_endpoints(pods: Iterable[Pod], post: Post) -> None:
    give_once("endpoint", filter(serves, pods), lambda pod: _free_place(pod, post), post)


def serves(pod: Pod) -> bool:
    return pod.workload.kind == WorkloadKind.SERVICE


def _free_place(pod: Pod, post: Post) -> dict[str, str | int] | None:
    try:
        address, port = post.runtimes(pod.node.pool).rendezvous()
    except (RuntimeFailure, LookupError, OSError) as error:
        log.warning("no port for pod %s: %s", pod.pk, error)
        return None
    return {"address": address or pod.node.address, "port": port}
