"""Find the pod for a channel and open the channel."""

import socket
from dataclasses import dataclass
from uuid import UUID

from berth.core.errors import Conflict, Unavailable
from berth.core.not_found import ObjectKind, not_found_error
from pools.runtimes.base import ChannelRejected, Runtime, RuntimeFailure
from projects import selectors
from projects.actor import Actor
from projects.models import Pod, Workload
from projects.services.workloads.channels import require_channel
from scheduler.api.logs.pod_log import find_latest_log


@dataclass(frozen=True, slots=True)
class ChannelPod:
    pod: Pod
    runtime: Runtime

    def open(self) -> socket.socket:
        """Open a new channel and return the connection. Raises Conflict or Unavailable."""
        name = f"{self.pod.role}-{self.pod.index} of {self.pod.workload.name}"
        try:
            return self.runtime.open_channel(str(self.pod.pk))
        except ChannelRejected as rejection:
            raise Conflict(f"Commands cannot be run in {name}: {rejection}.") from None
        except (RuntimeFailure, OSError) as error:
            raise Unavailable(f"{name} cannot be reached right now: {error}.") from None


def find_channel_pod(actor: Actor, workload_id: UUID, name: str | None) -> ChannelPod:
    """Return a pod of a running workload, by default the rank-0 pod.

    Raises NotFound, Forbidden, Conflict or Unavailable.
    """
    workload = selectors.workloads(actor).select_related("project").filter(pk=workload_id).first()
    if workload is None:
        raise not_found_error(ObjectKind.WORKLOAD, object_id=workload_id)
    assert isinstance(workload, Workload)
    require_channel(actor, workload)
    latest = find_latest_log(actor, workload, name=name, run=None)
    latest.pod.workload = workload
    return ChannelPod(latest.pod, latest.runtime)
