"""Lock the rows that a set of bundles affects, and detect changes since the snapshot was taken."""

import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from django.db.models import Count, F, Q, Sum

from berth.core.values.amounts import MILLI
from berth.db.queries.compiled import compiled_once
from berth.db.writes.bulk_rows import load_related_objects
from pools.models import Node, QuotaGroup
from projects.models import Phase, Pod, Quota, Workload
from scheduler.engine.plan import Bundle, Evict, Place
from scheduler.loop.commit.bind import STOPPABLE_STATES
from scheduler.loop.observe.isolation import ServedProjects, local_pools
from scheduler.loop.observe.view import ClusterView
from scheduler.models import Allocation, DeviceClaim, Reservation

PLACEABLE_PHASES = (Phase.PENDING, Phase.RESERVED, Phase.STARTING, Phase.RUNNING)
USABLE_NODE_STATES = ("ready",)
RESERVABLE_NODE_STATES = ("ready", "booting", "requested")

WORKLOADS = compiled_once(
    lambda keys: (
        Workload.objects.select_for_update(of=("self",))
        .filter(pk__any=keys)
        .defer("labels", "explanation", "pending_reasons")
        .order_by("pk")
    )
)
NODES = compiled_once(
    lambda keys: (
        Node.objects.select_for_update(of=("self",))
        .select_related("pool")
        .filter(pk__any=keys)
        .order_by("pk")
    )
)
LOCKED_QUOTAS = compiled_once(
    lambda projects, departments: (
        Quota.objects.select_for_update(of=("self",), no_key=True)
        .filter(Q(project_id__any=projects) | Q(department_id__any=departments))
        .order_by("pk")
        .values_list("pk")
    )
)
QUOTA_VERSIONS = compiled_once(lambda: Quota.objects.order_by().values_list("pk", "version"))
GROUP_VERSIONS = compiled_once(
    lambda: QuotaGroup.objects.filter(pools__isnull=False).order_by().distinct().values_list("pk", "version")
)
RESERVED = compiled_once(
    lambda workloads: (
        Reservation.objects.filter(workload_id__any=workloads)
        .order_by()
        .values_list("workload_id", "role", "index")
    )
)
CLAIMED = compiled_once(
    lambda nodes: (
        DeviceClaim.objects.filter(node_id__any=nodes)
        .values_list("node_id", "device")
        .annotate(Sum("milli"))
        .order_by("node_id", "device")
    )
)
ALLOCATED = compiled_once(
    lambda nodes: (
        Allocation.objects.filter(node_id__any=nodes, released_at__isnull=True)
        .values_list("node_id")
        .annotate(Sum("cpu_milli"), Sum("memory_mib"), Count("pk"))
        .order_by("node_id")
    )
)


Key = tuple[str, str, int]  # workload name, role name and replica index
NodeResources = tuple[int, int, int]  # milli-CPU, MiB and number of pods
NO_RESOURCES: NodeResources = (0, 0, 0)


@dataclass(frozen=True)
class LockedRows:
    """Current rows, which are locked in a fixed order: workloads, pods, nodes, quotas."""

    workloads: Mapping[str, Workload]
    before: Mapping[str, tuple[str, int]]  # each workload's phase and version before this commit
    pods: Mapping[uuid.UUID, Pod]
    reserved: frozenset[Key]
    nodes: Mapping[str, Node]
    # Claimed milli-GPU by node and device, for nodes on which a bundle places pods with GPUs.
    # Updated after each accepted bundle.
    claimed: dict[tuple[int, int], int]
    allocated: dict[int, NodeResources]  # allocated amounts by node, updated with every accepted bundle
    changed_queues: frozenset[str]
    served: ServedProjects  # served projects, updated with every accepted bundle
    # Ranks by workload and replica, updated with every new pod.
    ranks: dict[uuid.UUID, dict[tuple[str, int], int]]

    @cached_property
    def reserved_workloads(self) -> frozenset[str]:
        """Names of the workloads that had reservations before this commit."""
        return frozenset(name for name, _, _ in self.reserved)

    def live_pod_id(self, view: ClusterView, key: Key) -> uuid.UUID | None:
        """Return the ID of the replica's pod, or None if the pod can no longer be stopped."""
        pod = self.pods.get(view.pods.get(key, uuid.UUID(int=0)))
        return pod.pk if pod is not None and pod.state in STOPPABLE_STATES else None


def lock_rows(view: ClusterView, bundles: Iterable[Bundle]) -> LockedRows:
    bundles = tuple(bundles)
    names = sorted({name for bundle in bundles for name in _workload_names(bundle)} & view.workloads.keys())
    by_pk = {view.workloads[name].pk: name for name in names}
    rows = list(WORKLOADS([*by_pk]))
    load_related_objects(rows, "project", view.queues.find_projects)
    workloads = {by_pk[row.pk]: row for row in rows}
    steps = [step for bundle in bundles for step in bundle.steps]
    stopped = [pk for step in steps if isinstance(step, Evict) and (pk := _pod_id(view, step))]
    pods = Pod.objects.select_for_update().filter(pk__in=stopped).order_by("pk") if stopped else ()
    placed = [step for step in steps if isinstance(step, Place) and step.node in view.nodes]
    places = {view.nodes[step.node] for step in placed}
    nodes = list(NODES([*places]))
    _lock_quotas(workloads.values())
    return LockedRows(
        workloads=workloads,
        before={name: (row.phase, row.version) for name, row in workloads.items()},
        pods={pod.pk: pod for pod in pods},
        reserved=_reserved_keys(by_pk) if view.has_reservations else frozenset(),
        nodes={node.name: node for node in nodes},
        claimed=_claimed_milli_by_device({view.nodes[step.node] for step in placed if step.devices}),
        allocated=_allocated_resources(places),
        changed_queues=_changed_queues(view),
        served=ServedProjects(nodes, local_pools(view.pools.values())),
        ranks=_ranks_in_use(workloads, steps),
    )


def bundle_conflict(bundle: Bundle, view: ClusterView, locked: LockedRows) -> str:
    """Return why the bundle can no longer be applied, or an empty string if it can."""
    for name in sorted(_workload_names(bundle)):
        conflict = _workload_conflict(name, view, locked)
        if conflict:
            return conflict
    claims: dict[tuple[int, int], int] = defaultdict(int)
    requested: dict[str, NodeResources] = {}
    for step in bundle.steps:
        conflict = (
            _eviction_conflict(step, view, locked)
            if isinstance(step, Evict)
            else _placement_conflict(step, locked)
        )
        if conflict:
            return conflict
        if isinstance(step, Place) and not step.reserved:
            node = locked.nodes[step.node]
            requested[step.node] = add_resources(
                requested.get(step.node, NO_RESOURCES), _requested_resources(step, view)
            )
            for device in step.devices:
                claims[node.pk, device] += step.milli
    for (pk, device), milli in claims.items():
        if locked.claimed.get((pk, device), 0) + milli > MILLI:
            return f"device {device} of node {pk} is already allocated"
    return _resource_conflict(requested, locked)


def count_allocations(bundle: Bundle, view: ClusterView, locked: LockedRows) -> None:
    """Count an accepted bundle's allocations, so that later bundles are checked against them."""
    for step in bundle.steps:
        if isinstance(step, Place) and not step.reserved:
            node = locked.nodes[step.node].pk
            locked.served.add(node, locked.workloads[step.workload].project_id)
            locked.allocated[node] = add_resources(
                locked.allocated.get(node, NO_RESOURCES), _requested_resources(step, view)
            )
            for device in step.devices:
                locked.claimed[node, device] = locked.claimed.get((node, device), 0) + step.milli


def _workload_conflict(name: str, view: ClusterView, locked: LockedRows) -> str:
    observed, row = view.workloads.get(name), locked.workloads.get(name)
    if observed is None or row is None:
        return f"{name} no longer exists"
    if locked.before[name] != (observed.phase, observed.version):
        return f"{name} was {observed.phase} and is {locked.before[name][0]}"
    changed = locked.changed_queues.intersection(view.queues.queue_path(view.queues.projects[row.project_id]))
    return f"the quota of {min(changed)} was edited" if changed else ""


def _eviction_conflict(step: Evict, view: ClusterView, locked: LockedRows) -> str:
    key = (step.workload, step.role, step.index)
    if locked.live_pod_id(view, key) is None and key not in locked.reserved:
        return f"{step.workload} no longer runs {step.role} {step.index}"
    return ""


def _placement_conflict(step: Place, locked: LockedRows) -> str:
    node = locked.nodes.get(step.node)
    if node is None or node.state not in (RESERVABLE_NODE_STATES if step.reserved else USABLE_NODE_STATES):
        return f"node {step.node} no longer accepts pods"
    if any(device >= node.gpus for device in step.devices):
        return f"node {step.node} has only {node.gpus} devices"
    if node.obstacle and not step.reserved:
        return f"node {step.node} accepts no pods: {node.obstacle}"
    if not set(step.devices).isdisjoint(node.foreign_devices):
        return f"devices of node {step.node} are used by foreign pods"
    if not step.reserved and locked.workloads[step.workload].phase not in PLACEABLE_PHASES:
        return f"{step.workload} is {locked.workloads[step.workload].phase}"
    only_project = locked.served.only_project_on_node(node.pk)
    if only_project not in (None, locked.workloads[step.workload].project_id):
        return f"node {step.node} cannot isolate pods and serves another project"
    return ""


def add_resources(a: NodeResources, b: NodeResources) -> NodeResources:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


def _requested_resources(step: Place, view: ClusterView) -> NodeResources:
    request = view.workloads[step.workload].spec.roles[step.role].request
    return request.cpu, request.memory_mib, 1


def _resource_conflict(requested: Mapping[str, NodeResources], locked: LockedRows) -> str:
    for name, more in requested.items():
        node = locked.nodes[name]
        cpu, memory, pods = add_resources(locked.allocated.get(node.pk, NO_RESOURCES), more)
        if cpu * MILLI > node.cpu_milli * node.pool.cpu_load_limit:
            return f"node {node.name} would allocate {cpu} of its {node.cpu_milli} milli-CPU"
        if memory > node.memory_mib:
            return f"node {node.name} would allocate {memory} of its {node.memory_mib} MiB"
        if pods > node.max_pods:
            return f"node {node.name} would run {pods} pods, but its maximum is {node.max_pods}"
    return ""


def _workload_names(bundle: Bundle) -> set[str]:
    return {
        bundle.workload,
        *(step.workload for step in bundle.steps),
        *(e.workload for e in bundle.evictions),
    }


def _pod_id(view: ClusterView, step: Evict) -> uuid.UUID | None:
    return view.pods.get((step.workload, step.role, step.index))


def _reserved_keys(names: Mapping[uuid.UUID, str]) -> frozenset[Key]:
    return frozenset((names[pk], role, index) for pk, role, index in RESERVED([*names]))


def _ranks_in_use(
    workloads: Mapping[str, Workload], steps: Iterable[Place | Evict]
) -> dict[uuid.UUID, dict[tuple[str, int], int]]:
    """Return the ranks in use, keyed by workload, for the active runs that get new pods."""
    active = (Phase.STARTING, Phase.RUNNING)
    placed = {step.workload for step in steps if isinstance(step, Place) and not step.reserved}
    ids = [workloads[name].pk for name in placed & workloads.keys() if workloads[name].phase in active]
    ranks: dict[uuid.UUID, dict[tuple[str, int], int]] = {pk: {} for pk in ids}
    if ids:
        pods = Pod.objects.filter(workload__in=ids, run=F("workload__run")).order_by("created_at", "pk")
        for pk, role, index, rank in pods.values_list("workload_id", "role", "index", "rank"):
            ranks[pk][role, index] = rank
    return ranks


def _claimed_milli_by_device(nodes: Iterable[int]) -> dict[tuple[int, int], int]:
    keys = [*nodes]
    return {(node, device): milli for node, device, milli in CLAIMED(keys)} if keys else {}


def _allocated_resources(nodes: Iterable[int]) -> dict[int, NodeResources]:
    return {node: (cpu, memory, pods) for node, cpu, memory, pods in ALLOCATED([*nodes])}


def _lock_quotas(workloads: Iterable[Workload]) -> None:
    projects = {row.project for row in workloads}
    list(LOCKED_QUOTAS([each.pk for each in projects], [*{each.department_id for each in projects}]))


def _have_groups_changed(view: ClusterView) -> bool:
    before = view.queues.group_versions
    return bool(before) and dict(GROUP_VERSIONS()) != before


def _changed_queues(view: ClusterView) -> frozenset[str]:
    if _have_groups_changed(view):
        return frozenset(view.queues.owners)
    current_versions = dict(QUOTA_VERSIONS())
    edited = {
        pk
        for pk in current_versions.keys() | view.queues.versions.keys()
        if current_versions.get(pk) != view.queues.versions.get(pk)
    }
    if not edited:
        return frozenset()
    owners = {
        row.pk: row.project_id for row in Quota.objects.filter(pk__in=edited) if row.project_id is not None
    }
    if edited - owners.keys():  # every queue may depend on a department's quota or on a deleted quota
        return frozenset(view.queues.owners)
    return frozenset(view.queues.projects[pk] for pk in owners.values() if pk in view.queues.projects)
