"""Give replicas their places: pods where they fit now, reservations where they will fit."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from berth.core.words import counted
from pools.models import Node
from pools.selectors import is_operational
from projects.models import Phase
from scheduler.commit.bind import Start, said, start
from scheduler.commit.scene import Scene, shift
from scheduler.engine.plan import Bundle, Evict, Place, Reason
from scheduler.models import Reservation

PROMISE = timedelta(seconds=120)  # beyond the longest grace of who must go first
PROMISE_WHILE_BOOTING = timedelta(seconds=900)


def place(bundle: Bundle, scene: Scene) -> None:
    """Every workload of the bundle that gets places: a promise for all of them, or pods for all."""
    steps: dict[str, list[Place]] = defaultdict(list)
    for step in bundle.steps:
        if isinstance(step, Place):
            steps[step.workload].append(step)
    for name, places in steps.items():
        if any(step.reserved for step in places):
            _promise(name, places, _promised_until(bundle, scene), scene)
        else:
            workload, meaning = scene.ground.workloads[name], scene.seen.workloads[name].meaning
            meeting = scene.meeting.get(name)
            given = Start(workload, meaning, places, scene.ground.nodes, scene.now, scene.cycle, meeting)
            start(given, scene.bound, str(bundle.kind), bundle.message if name == bundle.workload else "")


def _promise(name: str, places: Sequence[Place], expires: datetime, scene: Scene) -> None:
    workload = scene.ground.workloads[name]
    Reservation.objects.filter(workload=workload).delete()
    Reservation.objects.bulk_create(
        Reservation(
            workload=workload,
            role=step.role,
            index=step.index,
            node=scene.ground.nodes[step.node],
            devices=list(step.devices),
            gpu_milli=step.milli if step.devices else 0,
            since=scene.now,
            expires_at=expires,
        )
        for step in places
    )
    if workload.phase == Phase.PENDING:
        reason, message = _waits_for(places, scene)
        shift(
            workload,
            scene,
            expected=[Phase.PENDING],
            to=Phase.RESERVED,
            reason=reason,
            message=message,
        )


def _waits_for(places: Sequence[Place], scene: Scene) -> tuple[Reason, str]:
    """The reason and message of a reservation: nodes are booting, or pods are stopping."""
    booting = {step.node for step in places if _is_booting(scene.ground.nodes[step.node])}
    if not booting:
        message = f"Reserved: {said(places)} It starts as soon as the pods there have stopped."
        return Reason.WAITING_FOR_VICTIMS, message
    nodes, have = counted(len(booting), "node"), "has" if len(booting) == 1 else "have"
    message = f"Reserved: {said(places)} It starts as soon as {nodes} {have} booted."
    return Reason.WAITING_FOR_SCALE_UP, message


def _is_booting(node: Node) -> bool:
    return node.state != Node.State.READY or not is_operational(node.pool)


def _promised_until(bundle: Bundle, scene: Scene) -> datetime:
    """Long enough for the slowest to go, or the node to come; then somebody else may have the room."""
    graces = [
        spec.grace_period_seconds
        for step in bundle.steps
        if isinstance(step, Evict) and (spec := scene.seen.workloads[step.workload].meaning.spec) is not None
    ]
    nodes = [scene.ground.nodes[step.node] for step in bundle.steps if isinstance(step, Place)]
    booting = any(map(_is_booting, nodes))
    grace = timedelta(seconds=max(graces, default=0))
    return scene.now + grace + (PROMISE_WHILE_BOOTING if booting else PROMISE)
