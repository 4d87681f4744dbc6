"""Place replicas: create pods that fit now, and reservations for pods that will fit later."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from berth.core.wording.words import format_count
from pools.models import Node
from pools.selectors import is_operational
from projects.models import Phase
from scheduler.engine.plan import Bundle, Evict, Place, Reason
from scheduler.loop.commit.bind import StartCommand, describe_placement, start_or_scale_up
from scheduler.loop.commit.context import CommitContext, add_phase_change
from scheduler.models import Reservation

RESERVATION_TIMEOUT = timedelta(seconds=120)  # extra time after the victims' longest grace period
BOOT_RESERVATION_TIMEOUT = timedelta(seconds=900)


def place_or_reserve(bundle: Bundle, context: CommitContext) -> None:
    """Create pods for each workload that the bundle places, or reserve resources for its replicas."""
    steps: dict[str, list[Place]] = defaultdict(list)
    for step in bundle.steps:
        if isinstance(step, Place):
            steps[step.workload].append(step)
    reserved = context.locked.reserved_workloads
    for name, places in steps.items():
        if any(step.reserved for step in places):
            _reserve_replicas(name, places, _reservation_expiry(bundle, context), context)
        else:
            workload, spec = context.locked.workloads[name], context.view.workloads[name].spec
            ranks = context.locked.ranks.setdefault(workload.pk, {})
            order = StartCommand(
                workload, spec, places, context.locked.nodes, context.now, context.cycle, ranks,
                context.rendezvous.get(name),
                has_reservations=name in reserved or workload.pk in context.new_rows.newly_reserved,
            )  # fmt: skip
            start_or_scale_up(
                order, context.new_rows, str(bundle.kind), bundle.message if name == bundle.workload else ""
            )


def _reserve_replicas(name: str, places: Sequence[Place], expires: datetime, context: CommitContext) -> None:
    workload = context.locked.workloads[name]
    if workload.pk in context.new_rows.reserved:
        context.new_rows.write()  # the later reservation replaces the earlier one
    context.new_rows.reserved.add(workload.pk)
    context.new_rows.newly_reserved.add(workload.pk)
    context.new_rows.reservations += [
        Reservation(
            workload=workload,
            role=step.role,
            index=step.index,
            node=context.locked.nodes[step.node],
            devices=list(step.devices),
            gpu_milli=step.milli if step.devices else 0,
            since=context.now,
            expires_at=expires,
        )
        for step in places
    ]
    if workload.phase == Phase.PENDING:
        reason, message = _reservation_reason(places, context)
        add_phase_change(
            workload,
            context,
            expected=[Phase.PENDING],
            to=Phase.RESERVED,
            reason=reason,
            message=message,
        )


def _reservation_reason(places: Sequence[Place], context: CommitContext) -> tuple[Reason, str]:
    booting = {step.node for step in places if _is_unavailable(context.locked.nodes[step.node])}
    if not booting:
        message = f"Reserved: {describe_placement(places)} The workload starts once pods there have stopped."
        return Reason.WAITING_FOR_VICTIMS, message
    nodes, have = format_count(len(booting), "node"), "has" if len(booting) == 1 else "have"
    message = f"Reserved: {describe_placement(places)} The workload starts once {nodes} {have} booted."
    return Reason.WAITING_FOR_SCALE_UP, message


def _is_unavailable(node: Node) -> bool:
    return node.state != Node.State.READY or not is_operational(node.pool)


def _reservation_expiry(bundle: Bundle, context: CommitContext) -> datetime:
    """Return when the bundle's reservations expire, allowing for grace periods and boot times."""
    graces = [
        spec.stop_seconds
        for step in bundle.steps
        if isinstance(step, Evict) and (spec := context.view.workloads[step.workload].spec.spec) is not None
    ]
    nodes = [context.locked.nodes[step.node] for step in bundle.steps if isinstance(step, Place)]
    booting = any(map(_is_unavailable, nodes))
    grace = timedelta(seconds=max(graces, default=0))
    return context.now + grace + (BOOT_RESERVATION_TIMEOUT if booting else RESERVATION_TIMEOUT)
