"""Browser test data: a pool of thousands of nodes, most of them busy."""

from django.utils import timezone

from pools.models import Node, NodePool, ScalingEvent
from pools.models.scaling import ScalingKind
from projects.models import Pod, Project
from scheduler.models import Allocation, PodUtilization
from tests import factories as make

GPUS = 8
STATES = {7: "draining", 11: "booting", 13: "cordoned"}  # state by node number modulo 100


def create_fleet(project: Project, size: int = 4000) -> NodePool:
    """Create sequences of full, half-full and empty nodes, as gang scheduling leaves them."""
    pool = make.pool(
        "fleet",
        gpus=GPUS,
        nodes_min=0,
        nodes_max=size,
        nodes_desired=size,
        gpu_model="H100",
        operational_since=make.ago(hours=3),
        ticked_at=make.ago(seconds=5),
    )
    since, drained_at = make.ago(hours=3), make.ago(minutes=2)
    nodes = Node.objects.bulk_create(
        Node(
            pool=pool, name=f"fleet-{n}", ordinal=n, state=STATES.get(n % 100, "ready"), since=since,
            instance_id=f"i-fleet-{n}", gpus=GPUS, cpu_milli=64_000, memory_mib=512_000, created_at=since,
            drain_started_at=drained_at if n % 100 == 7 else None, ready_at=since,
            drain_reason="new driver" if n % 100 == 7 else ""
        )
        for n in range(size)
    )  # fmt: skip
    work = make.workload(project, "fleet-train", phase="running", replicas=size, gpus=GPUS)
    holders = [node for node in nodes if node.ordinal % 40 < 31 and node.state != "booting"]
    pods = Pod.objects.bulk_create(
        Pod(workload=work, role="worker", index=n, run=1, rank=n, node=node, state="running", since=since)
        for n, node in enumerate(holders)
    )
    Allocation.objects.bulk_create(
        Allocation(
            pod=pod, node=pod.node, devices=list(range(_allocated_gpus(pod.node.ordinal))), gpu_milli=1000,
            cpu_milli=4000, memory_mib=8000, bound_at=make.ago(hours=2),
        )
        for pod in pods
    )  # fmt: skip
    PodUtilization.objects.bulk_create(
        PodUtilization(
            pod=pod, at=timezone.now(), cpu_seconds=600, cpu_milli=2500, memory_mib=6000,
            devices=[[990 - 37 * (pod.index % 17), 52_000]] * _allocated_gpus(pod.node.ordinal),
        )
        for pod in pods
    )  # fmt: skip
    ScalingEvent.objects.bulk_create(
        ScalingEvent(
            pool=pool, node=node, kind=ScalingKind.CORDON, at=make.ago(hours=1),
            reason="cordon by ada: row of racks without cooling",
        )
        for node in nodes
        if node.state == "cordoned"
    )  # fmt: skip
    return pool


def _allocated_gpus(ordinal: int) -> int:
    return GPUS if ordinal % 40 < 24 else 3 if ordinal % 40 < 28 else 6
