"""Orders that no cluster can run, and permanent rejections by the API server."""

from pools.kubernetes.api import ApiError
from pools.runtimes.base import PodOrder

WHOLE_DEVICE = 1000
# Parts of status 403 messages that do not concern the pod itself.
TEMPORARY = ("exceeded quota", "cannot create resource", "being terminated")


def find_refusal(order: PodOrder) -> str:
    """Return why the pod can never start on Kubernetes, or an empty string."""
    if not order.image:
        return "pods on Kubernetes need a container image. Set `image` in the workload"
    if order.devices and order.device_milli != WHOLE_DEVICE:
        return "Kubernetes assigns only whole GPUs. Request whole GPUs, or use another pool"
    texts = [*order.command, *order.env.values(), *order.secret_env.values()]
    if any("\0" in text for text in texts):
        return "the command or a variable contains a NUL character"
    return ""


def permanent_refusal(error: ApiError) -> str:
    """Return why the API server will never accept the pod, or an empty string if it may accept it later.

    A cluster quota may gain room, missing permissions may be granted, and a terminating namespace may be
    created again.
    """
    if error.status == 422 or (error.status == 400 and error.reason in ("BadRequest", "Invalid")):
        return f"the cluster rejects the pod as invalid: {error.message}"
    if error.status == 403 and not any(part in error.message for part in TEMPORARY):
        return f"the cluster's policies reject the pod: {error.message}"
    return ""
