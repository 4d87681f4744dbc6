"""Connect to pod ports through the pod's cluster."""

import socket

from berth.server.wiring import UnavailableImplementation, load_wiring
from pools.kubernetes.runtime import KubernetesRuntime
from pools.runtimes.base import ChannelRejected, RuntimeFailure
from projects.models import Pod


def open_pod_port(pod_id: str, port: int) -> socket.socket:
    """Connect to a pod's port in a Kubernetes pool. Raises OSError with the reason."""
    try:
        pod = Pod.objects.select_related("node__pool").get(pk=pod_id)
        runtime = load_wiring().runtime_for(pod.node.pool)
        assert isinstance(runtime, KubernetesRuntime)
        return runtime.open_port(pod_id, port)
    except (ChannelRejected, RuntimeFailure, UnavailableImplementation, Pod.DoesNotExist) as error:
        raise ConnectionError(str(error)) from None
