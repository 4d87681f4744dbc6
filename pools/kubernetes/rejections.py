"""Detect pods that can never run on Kubernetes, and explain the API server's rejections."""

import re

from pools.kubernetes.api_server.api import ApiError
from pools.runtimes.base import PodSpec

WHOLE_DEVICE = 1000
# Phrases in 403 errors that are not caused by the pod itself. A retry may succeed.
TEMPORARY = ("cannot create resource", "being terminated", "exceeded quota", "status unknown for quota")
_EXCEEDED_QUOTA = re.compile(r"exceeded quota: ([^,]+), requested: (\S+), used: (\S+), limited: (\S+)")


def find_rejection(spec: PodSpec) -> str:
    """Return why the pod can never start on Kubernetes, or an empty string if no obstacle is known."""
    if not spec.image:
        return "pods on Kubernetes need a container image. Set `image` in the workload"
    if spec.devices and spec.device_milli != WHOLE_DEVICE:
        return "Kubernetes assigns only whole GPUs. Request whole GPUs, or use another pool"
    texts = [*spec.command, *spec.env.values(), *spec.secret_env.values()]
    if any("\0" in text for text in texts):
        return "the command or a variable contains a NUL character"
    return ""


def permanent_rejection(error: ApiError) -> str:
    """Return why the API server will never accept the pod, or "" if a retry may succeed.

    A retry may succeed after a rejection because of permissions, quotas or namespaces, since these can
    change.
    """
    if error.status == 422 or (error.status == 400 and error.reason in ("BadRequest", "Invalid")):
        return f"the cluster rejects the pod as invalid: {error.message}"
    if error.status == 403 and not any(part in error.message for part in TEMPORARY):
        return f"the cluster's policies reject the pod: {error.message}"
    return ""


def temporary_rejection(error: ApiError, namespace: str) -> str:
    """Return why the API server rejects the pod for now, or "" for other errors."""
    if error.status == 403:
        quota = ExceededQuota.parse(error.message)
        return f"the cluster rejects the pod: {error.message}" if quota is None else quota.text(namespace)
    if error.status >= 500 and "webhook" in error.message:
        return f"the cluster rejects the pod: {error.message}"
    return ""


class ExceededQuota:
    """API error about a pod that exceeds a ResourceQuota, with the requested, used and allowed amounts."""

    def __init__(self, name: str, requested: str, used: str, limited: str) -> None:
        self.name = name
        self._requested, self._used, self._limited = map(_parse_amounts, (requested, used, limited))

    @classmethod
    def parse(cls, message: str) -> "ExceededQuota | None":
        match = _EXCEEDED_QUOTA.search(message)
        return None if match is None else cls(*match.groups())

    def text(self, namespace: str) -> str:
        resources = ", ".join(
            f"{resource.removeprefix('requests.')}: {amount} requested, "
            f"{self._used.get(resource, '?')} of {self._limited.get(resource, '?')} used"
            for resource, amount in self._requested.items()
        )
        return f"the cluster's quota {self.name} for the namespace {namespace} is exceeded ({resources})"


def _parse_amounts(text: str) -> dict[str, str]:
    """Parse amounts such as `cpu=2,requests.nvidia.com/gpu=1`."""
    return {name: amount for name, _, amount in (part.partition("=") for part in text.split(","))}
