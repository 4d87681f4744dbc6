"""Read the ResourceQuotas of the namespaces where projects' pods run."""

import math
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from pools.kubernetes.manifests import CONTAINER
from pools.kubernetes.quantities import MIB, parse_quantity
from pools.kubernetes.reports import read_report
from pools.runtimes.base import ClusterQuota, PodState

# Berth's resource for each resource name in a quota. The pool's GPU resource is added later.
KINDS = {
    "cpu": "cpu", "requests.cpu": "cpu", "memory": "memory_mib", "requests.memory": "memory_mib",
    "limits.cpu": "limit_cpu", "limits.memory": "limit_memory_mib", "pods": "pods", "count/pods": "pods",
}  # fmt: skip
# Workload pods always match these scopes. Berth cannot know in advance whether they match other scopes.
SCOPES = frozenset({"NotTerminating", "NotBestEffort"})
Object = Mapping[str, Any]


def read_quotas(
    quotas: Iterable[Object], pods: Iterable[Object], gpu_resource: str
) -> tuple[ClusterQuota, ...]:
    """Return the sorted cluster quotas that apply to a pool's pods.

    `pods` are the pool's own live pods. Their requests are subtracted from the used amounts, because Berth
    counts them itself.
    """
    kinds = {**KINDS, f"requests.{gpu_resource}": "gpu"}
    applicable = [quota for quota in quotas if _applies_to_pods(quota)]
    namespaces = {quota["metadata"]["namespace"] for quota in applicable}
    counted = [pod for pod in pods if pod["metadata"]["namespace"] in namespaces and _is_counted(pod)]
    limits = (limit for quota in applicable for limit in _cluster_quotas(quota, counted, kinds, gpu_resource))
    return tuple(sorted(limits, key=lambda limit: (limit.namespace, limit.name, limit.resource)))


def _applies_to_pods(quota: Object) -> bool:
    spec = quota.get("spec") or {}
    return not spec.get("scopeSelector") and SCOPES.issuperset(spec.get("scopes") or ())


def _is_counted(pod: Object) -> bool:
    return not pod["metadata"].get("deletionTimestamp") and read_report(pod).state is not PodState.EXITED


def _cluster_quotas(
    quota: Object, pods: Iterable[Object], kinds: Mapping[str, str], gpu_resource: str
) -> Iterator[ClusterQuota]:
    """Yield a ClusterQuota for each supported resource of a ResourceQuota.

    The amounts come from the quota's status, which admission uses too.
    """
    metadata, status = quota["metadata"], quota.get("status") or {}
    hard, used = status.get("hard") or quota["spec"].get("hard") or {}, status.get("used") or {}
    own = [pod for pod in pods if pod["metadata"]["namespace"] == metadata["namespace"]]
    for resource in sorted(kinds.keys() & hard.keys()):
        kind = kinds[resource]
        others = parse_quantity(used.get(resource) or 0)
        others -= sum((_pod_amount(pod, kind, gpu_resource) for pod in own), Decimal(0))
        yield ClusterQuota(
            name=metadata["name"],
            namespace=metadata["namespace"],
            resource=resource,
            kind=kind,
            hard=math.floor(_convert_amount(parse_quantity(hard[resource]), kind)),
            used=max(0, math.ceil(_convert_amount(others, kind))),
            uid=metadata.get("uid") or "",
        )


def _pod_amount(pod: Object, kind: str, gpu_resource: str) -> Decimal:
    """Return the main container's request or limit, depending on the kind, or 1 for the kind `pods`."""
    if kind == "pods":
        return Decimal(1)
    own = next(each for each in pod["spec"]["containers"] if each["name"] == CONTAINER)
    resources = own.get("resources") or {}
    part, name = {
        "gpu": ("requests", gpu_resource), "cpu": ("requests", "cpu"), "memory_mib": ("requests", "memory"),
        "limit_cpu": ("limits", "cpu"), "limit_memory_mib": ("limits", "memory"),
    }[kind]  # fmt: skip
    return parse_quantity((resources.get(part) or {}).get(name) or 0)


def _convert_amount(amount: Decimal, kind: str) -> Decimal:
    """Convert from Kubernetes' base unit to milli-GPUs, milli-CPUs, MiB or pods."""
    if kind == "pods":
        return amount
    return amount / MIB if kind in ("memory_mib", "limit_memory_mib") else amount * 1000
