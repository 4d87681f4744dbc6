"""Find cluster nodes that a pool can use, and subtract other pods' requests from the nodes' capacity."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from pools.kubernetes.quantities import parse_quantity, to_mebibytes, to_milli
from pools.kubernetes.settings import KubernetesSettings
from pools.providers.base import Shape, SharedMachine

INSTALLATION_LABEL, POOL_LABEL = "berth.dev/installation", "berth.dev/pool"
GONE_AFTER = timedelta(minutes=2)  # a node that has not been ready for this long is treated as gone
BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")
ENDED = ("Succeeded", "Failed")
Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RequestTotals:
    """Total resource requests of several pods."""

    cpu_milli: int = 0
    memory_mib: int = 0
    gpus: int = 0
    pods: int = 0

    def __add__(self, other: "RequestTotals") -> "RequestTotals":
        return RequestTotals(
            self.cpu_milli + other.cpu_milli, self.memory_mib + other.memory_mib, self.gpus + other.gpus,
            self.pods + other.pods,
        )  # fmt: skip


NO_USAGE = RequestTotals()


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """Node of the cluster. `obstacle` says why it accepts no pods, or is empty.

    `allocatable` includes the maximum number of pods. `unready_since` is set while the node is not ready.
    """

    name: str
    uid: str
    address: str
    allocatable: RequestTotals
    labels: Mapping[str, str]
    gpu_model: str = ""
    gpu_memory_mib: int = 0
    obstacle: str = ""
    unready_since: datetime | None = None

    def is_gone(self, now: datetime) -> bool:
        return self.unready_since is not None and now - self.unready_since >= GONE_AFTER


@dataclass(frozen=True, slots=True)
class Inventory:
    """Nodes that match a pool's selector, and the requests of other pods on these nodes.

    `at` is the time of the inventory according to the cluster's clock.
    """

    nodes: Mapping[str, ClusterNode]
    foreign: Mapping[str, RequestTotals]
    at: datetime

    def foreign_requests(self, node: ClusterNode) -> RequestTotals:
        """Return the total requests of the node's other pods, which do not belong to the pool."""
        return self.foreign.get(node.name, NO_USAGE)

    def shape(self, node: ClusterNode) -> Shape:
        """Return all devices of the node, and the CPU and memory that pods outside the pool have not
        requested.
        """
        total, foreign = node.allocatable, self.foreign_requests(node)
        return Shape(
            max(total.cpu_milli - foreign.cpu_milli, 0), max(total.memory_mib - foreign.memory_mib, 0),
            total.gpus, node.gpu_model, node.gpu_memory_mib,
        )  # fmt: skip

    def to_shared_machine(self, node: ClusterNode) -> SharedMachine:
        foreign = self.foreign_requests(node)
        return SharedMachine(max(node.allocatable.pods - foreign.pods, 1), node.labels, asdict(foreign))


def read_inventory(
    nodes: Iterable[Object], pods: Iterable[Object], settings: KubernetesSettings, at: datetime,
    is_own: Callable[[Object], bool],
) -> Inventory:  # fmt: skip
    """Return the nodes that match the pool's selector, with the resource requests of other pods on them.

    Other pods are those for which `is_own` returns False.
    """
    selected = {
        node["metadata"]["name"]: read_node(node, settings)
        for node in nodes
        if matches_selector(node, settings.node_selector)
    }
    usages: dict[str, list[RequestTotals]] = defaultdict(list)
    for pod in pods:
        name = pod["spec"].get("nodeName")
        if name in selected and not is_own(pod):
            usages[name].append(pod_requests(pod, settings.gpu_resource))
    return Inventory(selected, {name: total_requests(usage) for name, usage in usages.items()}, at)


def is_large_enough(node: ClusterNode, shape: Shape) -> bool:
    """Return whether the node's capacity, ignoring all pods, is enough for the pool's node shape."""
    total = node.allocatable
    fits = total.cpu_milli >= shape.cpu_milli and total.memory_mib >= shape.memory_mib
    return fits and total.gpus >= shape.gpus


def read_node(node: Object, settings: KubernetesSettings) -> ClusterNode:
    metadata, status = node["metadata"], node.get("status") or {}
    labels = metadata.get("labels") or {}
    allocatable = status.get("allocatable") or {}
    gpus = int(parse_quantity(allocatable.get(settings.gpu_resource) or 0))
    ready = _find_condition(status, "Ready")
    return ClusterNode(
        name=metadata["name"],
        uid=metadata.get("uid") or "",
        address=_address(status),
        allocatable=RequestTotals(
            to_milli(allocatable.get("cpu") or 0),
            int(to_mebibytes(allocatable.get("memory") or 0)),
            gpus,
            int(parse_quantity(allocatable.get("pods") or 0)),
        ),
        labels=labels,
        gpu_model=labels.get(settings.gpu_model_label, "")[:64] if gpus else "",
        gpu_memory_mib=_parse_memory_label(labels.get(settings.gpu_memory_label)) if gpus else 0,
        obstacle=_node_obstacle(node, ready, settings),
        unready_since=None if ready.get("status") == "True" else parse_time(ready.get("lastTransitionTime")),
    )


def matches_selector(node: Object, selector: Mapping[str, str]) -> bool:
    labels = node["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in selector.items())


def pod_requests(pod: Object, gpu_resource: str) -> RequestTotals:
    """Return a pod's requests as the cluster's scheduler counts them, or zero if the pod has ended."""
    if (pod.get("status") or {}).get("phase") in ENDED:
        return RequestTotals()
    spec = pod["spec"]
    together = [_container_requests(container, gpu_resource) for container in spec.get("containers") or ()]
    sidecars = [
        _container_requests(c, gpu_resource)
        for c in spec.get("initContainers") or ()
        if c.get("restartPolicy")
    ]
    before = [_container_requests(container, gpu_resource) for container in spec.get("initContainers") or ()]
    overhead = _parse_amounts(spec.get("overhead") or {}, gpu_resource)
    totals = []
    for resource in range(3):
        running = sum((each[resource] for each in [*together, *sidecars]), Decimal(0))
        largest = max((each[resource] for each in before), default=Decimal(0))
        totals.append(max(running, largest) + overhead[resource])
    return RequestTotals(to_milli(totals[0]), math.ceil(totals[1]), int(totals[2]), 1)


def total_requests(usages: Iterable[RequestTotals]) -> RequestTotals:
    return sum(usages, RequestTotals())


def parse_time(text: str | None) -> datetime | None:
    """Parse a UTC timestamp from the API server. Return None if it is missing."""
    return None if not text else datetime.fromisoformat(text)


def _container_requests(container: Object, gpu_resource: str) -> tuple[Decimal, Decimal, Decimal]:
    resources = container.get("resources") or {}
    return _parse_amounts(
        {**(resources.get("limits") or {}), **(resources.get("requests") or {})}, gpu_resource
    )


def _parse_amounts(amounts: Object, gpu_resource: str) -> tuple[Decimal, Decimal, Decimal]:
    return (
        parse_quantity(amounts.get("cpu") or 0),
        to_mebibytes(amounts.get("memory") or 0),
        parse_quantity(amounts.get(gpu_resource) or 0),
    )


def _node_obstacle(node: Object, ready: Object, settings: KubernetesSettings) -> str:
    spec = node.get("spec") or {}
    if node["metadata"].get("deletionTimestamp"):
        return "the node is being deleted"
    if ready.get("status") != "True":
        return f"the node is not ready: {ready.get('message') or ready.get('reason') or 'no status reported'}"
    if spec.get("unschedulable"):
        return "the node is cordoned in Kubernetes"
    for taint in spec.get("taints") or ():
        if taint.get("effect") in BLOCKING_EFFECTS and not _is_tolerated(taint, settings):
            value = f"={taint['value']}" if taint.get("value") else ""
            return f"the node has the taint {taint['key']}{value}:{taint['effect']}"
    return ""


def _is_tolerated(taint: Object, settings: KubernetesSettings) -> bool:
    return any(
        rule.key == taint.get("key")
        and rule.value in (None, taint.get("value") or "")
        and rule.effect in (None, taint.get("effect"))
        for rule in settings.tolerations
    )


def _find_condition(status: Object, kind: str) -> Object:
    return next((each for each in status.get("conditions") or () if each.get("type") == kind), {})


def _address(status: Object) -> str:
    addresses = {each.get("type"): each.get("address") or "" for each in status.get("addresses") or ()}
    return addresses.get("InternalIP") or addresses.get("ExternalIP") or ""


def _parse_memory_label(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 9 else 0
