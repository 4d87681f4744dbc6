"""Lock the rows that a set of bundles touches, and detect outdated bundles.

People may have cancelled, edited a quota or cordoned a node since the snapshot was taken.
"""

import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.db.models import Count, Q, Sum

from berth.core.amounts import MILLI
from pools.models import Node
from projects.models import Phase, Pod, PodState, Quota, Workload
from scheduler.engine.plan import Bundle, Evict, Place
from scheduler.models import Allocation, DeviceClaim, Reservation
from scheduler.observe import Seen

CAN_STOP = (PodState.STARTING, PodState.RUNNING)
CAN_BE_PLACED = (Phase.PENDING, Phase.RESERVED, Phase.STARTING, Phase.RUNNING)
CAN_HOLD = ("ready",)
CAN_BE_PROMISED = ("ready", "booting", "requested")


Key = tuple[str, str, int]  # workload, role, index
Room = tuple[int, int, int]  # milli-CPU, MiB, pods
NO_ROOM: Room = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Ground:
    """The rows as they are now, locked in one order: workloads, pods, nodes, quotas.

    Of the quotas, those of the workloads' queues: an edit that was answered before we came is seen, and one
    that comes now waits until the commit is through.
    """

    workloads: Mapping[str, Workload]
    found: Mapping[str, tuple[str, int]]  # phase and version of each as it was found, before this commit
    pods: Mapping[uuid.UUID, Pod]
    promised: frozenset[Key]
    nodes: Mapping[str, Node]
    claimed: dict[tuple[int, int], int]  # thousandths by (node, device); grows with every bundle taken
    held: dict[int, Room]  # by node; grows with every bundle taken
    changed_queues: frozenset[str]

    def standing(self, seen: Seen, key: Key) -> uuid.UUID | None:
        """The replica's pod, if it can still be told to stop."""
        pod = self.pods.get(seen.pods.get(key, uuid.UUID(int=0)))
        return pod.pk if pod is not None and pod.state in CAN_STOP else None


def locked(seen: Seen, bundles: Iterable[Bundle]) -> Ground:
    bundles = tuple(bundles)
    names = sorted({name for bundle in bundles for name in _workloads(bundle)} & seen.workloads.keys())
    by_pk = {seen.workloads[name].pk: name for name in names}
    rows = Workload.objects.select_for_update(of=("self",)).select_related("project__department")
    workloads = {by_pk[row.pk]: row for row in rows.filter(pk__in=by_pk).order_by("pk")}
    steps = [step for bundle in bundles for step in bundle.steps]
    stopped = [pk for step in steps if isinstance(step, Evict) and (pk := _pod(seen, step))]
    pods = Pod.objects.select_for_update().filter(pk__in=stopped).order_by("pk") if stopped else ()
    places = {seen.nodes[s.node] for s in steps if isinstance(s, Place) and s.node in seen.nodes}
    nodes = list(
        Node.objects.select_for_update(of=("self",))
        .select_related("pool")
        .filter(pk__in=places)
        .order_by("pk")
    )
    _lock_quotas(workloads.values())
    return Ground(
        workloads=workloads,
        found={name: (row.phase, row.version) for name, row in workloads.items()},
        pods={pod.pk: pod for pod in pods},
        promised=_promised(by_pk),
        nodes={node.name: node for node in nodes},
        claimed=_claims(places),
        held=_held(places),
        changed_queues=_changed_queues(seen),
    )


def outdated(bundle: Bundle, seen: Seen, ground: Ground) -> str:
    """Why the bundle no longer holds; nothing when it does."""
    for name in sorted(_workloads(bundle)):
        trouble = _workload_trouble(name, seen, ground)
        if trouble:
            return trouble
    wanted: dict[tuple[int, int], int] = defaultdict(int)
    room: dict[int, Room] = {}
    for step in bundle.steps:
        trouble = (
            _evict_trouble(step, seen, ground) if isinstance(step, Evict) else _place_trouble(step, ground)
        )
        if trouble:
            return trouble
        if isinstance(step, Place) and not step.reserved:
            node = ground.nodes[step.node]
            room[node.pk] = plus(room.get(node.pk, NO_ROOM), _asked(step, seen))
            for device in step.devices:
                wanted[node.pk, device] += step.milli
    for (pk, device), milli in wanted.items():
        if ground.claimed.get((pk, device), 0) + milli > MILLI:
            return f"device {device} of node {pk} is taken"
    return _room_trouble(room, ground)


def take(bundle: Bundle, seen: Seen, ground: Ground) -> None:
    """Count what an accepted bundle will hold, for the judgement of those after it."""
    for step in bundle.steps:
        if isinstance(step, Place) and not step.reserved:
            node = ground.nodes[step.node].pk
            ground.held[node] = plus(ground.held.get(node, NO_ROOM), _asked(step, seen))
            for device in step.devices:
                ground.claimed[node, device] = ground.claimed.get((node, device), 0) + step.milli


def _workload_trouble(name: str, seen: Seen, ground: Ground) -> str:
    then, row = seen.workloads.get(name), ground.workloads.get(name)
    if then is None or row is None:
        return f"{name} is gone"
    if ground.found[name] != (then.phase, then.version):
        return f"{name} was {then.phase} and is {ground.found[name][0]}"
    changed = ground.changed_queues.intersection(seen.queues.path(seen.queues.projects[row.project_id]))
    return f"the quota of {min(changed)} was edited" if changed else ""


def _evict_trouble(step: Evict, seen: Seen, ground: Ground) -> str:
    key = (step.workload, step.role, step.index)
    if ground.standing(seen, key) is None and key not in ground.promised:
        return f"{step.workload} no longer runs {step.role} {step.index}"
    return ""


def _place_trouble(step: Place, ground: Ground) -> str:
    node = ground.nodes.get(step.node)
    if node is None or node.state not in (CAN_BE_PROMISED if step.reserved else CAN_HOLD):
        return f"node {step.node} takes no work now"
    if any(device >= node.gpus for device in step.devices):
        return f"node {step.node} has only {node.gpus} devices"
    if not step.reserved and ground.workloads[step.workload].phase not in CAN_BE_PLACED:
        return f"{step.workload} is {ground.workloads[step.workload].phase}"
    return ""


def plus(a: Room, b: Room) -> Room:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


def _asked(step: Place, seen: Seen) -> Room:
    request = seen.workloads[step.workload].meaning.roles[step.role].request
    return request.cpu, request.memory_mib, 1


def _room_trouble(asked: Mapping[int, Room], ground: Ground) -> str:
    """The database would refuse it too; but then all that go in together would have to be tried anew."""
    nodes = {node.pk: node for node in ground.nodes.values()}
    for pk, more in asked.items():
        node = nodes[pk]
        cpu, memory, pods = plus(ground.held.get(pk, NO_ROOM), more)
        if cpu * MILLI > node.cpu_milli * node.pool.cpu_load_limit:
            return f"node {node.name} would give {cpu} of its {node.cpu_milli} milli-CPU"
        if memory > node.memory_mib:
            return f"node {node.name} would give {memory} of its {node.memory_mib} MiB"
        if pods > node.max_pods:
            return f"node {node.name} would hold {pods} pods of at most {node.max_pods}"
    return ""


def _workloads(bundle: Bundle) -> set[str]:
    return {
        bundle.workload,
        *(step.workload for step in bundle.steps),
        *(e.workload for e in bundle.evictions),
    }


def _pod(seen: Seen, step: Evict) -> uuid.UUID | None:
    return seen.pods.get((step.workload, step.role, step.index))


def _promised(names: Mapping[uuid.UUID, str]) -> frozenset[Key]:
    rows = Reservation.objects.filter(workload_id__in=names).values_list("workload_id", "role", "index")
    return frozenset((names[pk], role, index) for pk, role, index in rows)


def _claims(nodes: Iterable[int]) -> dict[tuple[int, int], int]:
    sums = (
        DeviceClaim.objects.filter(node_id__in=nodes).values_list("node_id", "device").annotate(Sum("milli"))
    )
    return {(node, device): milli for node, device, milli in sums.order_by("node_id", "device")}


def _held(nodes: Iterable[int]) -> dict[int, Room]:
    held = Allocation.objects.filter(node_id__in=nodes, released_at__isnull=True).values_list("node_id")
    sums = held.annotate(Sum("cpu_milli"), Sum("memory_mib"), Count("pk")).order_by("node_id")
    return {node: (cpu, memory, pods) for node, cpu, memory, pods in sums}


def _lock_quotas(workloads: Iterable[Workload]) -> None:
    projects = {row.project for row in workloads}
    owned = Q(project__in=projects) | Q(department__in={project.department_id for project in projects})
    rows = Quota.objects.select_for_update(of=("self",), no_key=True).filter(owned).order_by("pk")
    list(rows.values_list("pk"))


def _changed_queues(seen: Seen) -> frozenset[str]:
    """Queues with a quota row that is not as it was seen, or was not there, or is no more."""
    now = dict(Quota.objects.values_list("pk", "version"))
    edited = {
        pk for pk in now.keys() | seen.queues.versions.keys() if now.get(pk) != seen.queues.versions.get(pk)
    }
    if not edited:
        return frozenset()
    owners = {
        row.pk: row.project_id for row in Quota.objects.filter(pk__in=edited) if row.project_id is not None
    }
    if (
        edited - owners.keys()
    ):  # a department's, or one that was removed: whose children it touches is unknown
        return frozenset(seen.queues.owners)
    return frozenset(seen.queues.projects[pk] for pk in owners.values() if pk in seen.queues.projects)
