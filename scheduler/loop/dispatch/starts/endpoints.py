"""Assign an address and port to each service pod before it starts."""

import logging
from collections.abc import Iterable

from pools.runtimes.base import RuntimeFailure
from pools.runtimes.capabilities import runtime_capabilities
from projects.models import Pod, WorkloadKind
from scheduler.loop.context import SchedulerContext
from scheduler.loop.dispatch.starts.assign_once import assign_missing_values

log = logging.getLogger(__name__)


def assign_endpoints(pods: Iterable[Pod], context: SchedulerContext) -> None:
    assign_missing_values(
        "endpoint", filter(is_service_pod, pods), lambda pod: _find_free_endpoint(pod, context), context
    )


def is_service_pod(pod: Pod) -> bool:
    return pod.workload.kind == WorkloadKind.SERVICE


def _find_free_endpoint(pod: Pod, context: SchedulerContext) -> dict[str, str | int] | None:
    try:
        address, port = context.runtimes(pod.node.pool).rendezvous()
    except (RuntimeFailure, LookupError, OSError) as error:
        log.warning("no port for pod %s: %s", pod.pk, error)
        return None
    if runtime_capabilities(pod.node.pool.runtime).pods_have_addresses:
        return {"address": "", "port": port}  # the pod's own address becomes known once the pod runs
    return {"address": address or pod.node.address, "port": port}
