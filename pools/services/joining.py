"""Let machines join a pool and report to it."""

from dataclasses import dataclass
from datetime import datetime

from django.db import IntegrityError, transaction

from berth.core.errors import Conflict, Unauthenticated
from pools import history
from pools.joining import secrets
from pools.models import JoinToken, Machine, MachineUse, Node, NodePool
from pools.models.node import PENDING, NodeState
from pools.models.scaling import ScalingKind
from pools.providers.base import Interruption
from pools.providers.static import SILENT_AFTER, instance_id
from pools.services.boots import BootReport, StartReport, record_boot, record_start
from pools.services.nodes import interrupt_node

JOIN_REFUSED = "This token cannot join this pool: it is unknown, used, revoked or expired."
UNKNOWN_MACHINE = "Unknown machine secret."


@dataclass(frozen=True, slots=True)
class MachineReport:
    """Hardware that a machine reports when it joins. `instance_id` is set for a provider's instances."""

    name: str
    address: str
    cpu_milli: int
    memory_mib: int
    devices: tuple[str, ...] = ()
    gpu_model: str = ""
    instance_id: str = ""


def join(*, pool_name: str, token: str, measured: MachineReport, at: datetime) -> str:
    """Let a machine join a pool. Return the secret for the machine's later reports.

    Raises Unauthenticated for an unusable token, and Conflict for a duplicate name or a missing node.
    """
    if (order := secrets.verified_key(token, "order")) is not None:
        return _join_node(pool_name, order, measured, at)
    with transaction.atomic():
        token_row = JoinToken.objects.select_for_update().select_related("pool").filter(
            digest=secrets.digest(token), pool__name=pool_name, used_at=None, revoked_at=None,
            expires_at__gt=at,
        ).first()  # fmt: skip
        if token_row is None:
            raise Unauthenticated(JOIN_REFUSED)
        machine = _new_machine(token_row.pool, measured, at)
        token_row.used_at, token_row.used_by = at, machine
        token_row.save(update_fields=["used_at", "used_by"])
        gpus = f"{len(measured.devices)} GPUs"
        reason = f"{measured.name} joined with {gpus}, using a token issued by {token_row.issued_by}"
        history.write(token_row.pool, ScalingKind.JOINED, reason, at=at, machine=measured.name)
    return secrets.for_machine(machine.pk)


def record_report(
    secret: str, *, at: datetime, interruption: Interruption | None = None, booted: BootReport | None = None,
    started: StartReport | None = None,
) -> Node | None:  # fmt: skip
    """Record a machine's report. Return the machine's current node, or None if it has no node.

    Raises Unauthenticated if the secret is unknown or the node has ended.
    """
    node = _reporting_node(secret, at)
    if node is not None and booted is not None:
        record_boot(node, booted, at=at)
    if node is not None and started is not None:
        record_start(node, started, at=at)
    if node is not None and interruption is not None:
        interrupt_node(node, interruption, at=at)
        node.refresh_from_db()
    return node


def leave(secret: str, *, at: datetime) -> None:
    """Remove a machine that joined with a token. Raises Unauthenticated if the secret is unknown.

    The next tick marks the machine's node as lost.
    """
    key = secrets.verified_key(secret, "machine")
    if key is None or not Machine.objects.filter(pk=int(key), departed_at=None).update(departed_at=at):
        raise Unauthenticated(UNKNOWN_MACHINE)


def _join_node(pool_name: str, order: str, measured: MachineReport, at: datetime) -> str:
    """Join a node of an order. Idempotent until the node is ready, because a response may be lost."""
    pool, _, client_token = order.partition(".")
    if pool != pool_name:
        raise Unauthenticated(JOIN_REFUSED)
    with transaction.atomic():
        matching = Node.objects.select_for_update(of=("self",)).select_related("pool").filter(
            pool__name=pool, client_token=client_token, instance_id=measured.instance_id
        )  # fmt: skip
        node = matching.first()
        if node is None:
            raise Conflict("No node exists for this machine yet. Try again.")
        if node.state not in PENDING:
            raise Unauthenticated(JOIN_REFUSED)
        first = node.joined_at is None
        node.joined_at, node.address, node.devices = at, measured.address, list(measured.devices)
        node.cpu_milli = min(node.cpu_milli, measured.cpu_milli)
        node.memory_mib = min(node.memory_mib, measured.memory_mib)
        node.gpus = min(node.gpus, len(measured.devices))
        node.gpu_model = node.gpu_model or measured.gpu_model
        node.save()
        if first:
            hardware = f"{node.cpu_milli / 1000:g} cores, {node.memory_mib} MiB, {node.gpus} GPUs"
            reason = f"machine joined: {hardware}"
            history.write(node.pool, ScalingKind.JOINED, reason, at=at, node=node)
    return secrets.for_node(node.pk)


def _new_machine(pool: NodePool, measured: MachineReport, at: datetime) -> Machine:
    """Create the machine, and mark a silent machine with the same name as departed.

    The silent machine was reinstalled or never received its secret. Raises Conflict if a machine with this
    name still reports.
    """
    namesakes = Machine.objects.filter(pool=pool, name=measured.name, departed_at=None)
    namesakes.filter(last_seen_at__lte=at - SILENT_AFTER).update(departed_at=at)
    try:
        with transaction.atomic():
            return Machine.objects.create(
                pool=pool, name=measured.name, address=measured.address, cpu_milli=measured.cpu_milli,
                memory_mib=measured.memory_mib, devices=list(measured.devices),
                gpu_model=measured.gpu_model, joined_at=at, last_seen_at=at,
            )  # fmt: skip
    except IntegrityError:
        raise Conflict(f"A machine named {measured.name} has already joined pool {pool.name}.") from None


def _reporting_node(secret: str, at: datetime) -> Node | None:
    if (key := secrets.verified_key(secret, "node")) is not None:
        node = Node.objects.select_related("pool").filter(pk=int(key)).exclude(state=NodeState.ENDED).first()
        if node is None:
            raise Unauthenticated("This node has been terminated.")
        return node
    key = secrets.verified_key(secret, "machine")
    if key is None or not Machine.objects.filter(pk=int(key), departed_at=None).update(last_seen_at=at):
        raise Unauthenticated(UNKNOWN_MACHINE)
    use = MachineUse.objects.select_related("machine").filter(machine_id=int(key), ended_at=None).first()
    if use is None:
        return None
    nodes = Node.objects.select_related("pool").exclude(state=NodeState.ENDED)
    return nodes.filter(pool_id=use.machine.pool_id, instance_id=instance_id(use)).first()
