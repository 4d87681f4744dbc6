"""Register machines that join a pool, and process their reports."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from berth.core.errors import Conflict, Unauthenticated
from berth.core.wording.words import format_count
from pools import history
from pools.joining import secrets
from pools.joining.agent.allocation import ENDS_NOW
from pools.models import JoinToken, JoinTokenUse, Machine, MachineUse, Node, NodePool
from pools.models.node import HOSTING, PENDING, NodeState
from pools.models.scaling import ScalingKind
from pools.providers.base import Interruption
from pools.providers.static import SILENT_AFTER, instance_id
from pools.services.boots import BootReport, StartReport, record_boot, record_start
from pools.services.failed_boots import record_failed_boot
from pools.services.nodes import interrupt_node

Inventory = Mapping[str, Any]
JOIN_REJECTED = "This is not a join token for this pool. Issue a new token."
UNKNOWN_MACHINE = "This machine secret is unknown or revoked. Join the machine again."


@dataclass(frozen=True, slots=True)
class MachineReport:
    """Hardware that a joining machine reports.

    `instance_id` is set for a provider's instances. `machine_id` survives a reinstallation.
    """

    name: str
    address: str
    cpu_milli: int
    memory_mib: int
    devices: tuple[str, ...] = ()
    gpu_model: str = ""
    instance_id: str = ""
    machine_id: str = ""
    inventory: Inventory = field(default_factory=dict)


def join(*, pool_name: str, token: str, measured: MachineReport, at: datetime) -> str:
    """Register a machine that joins a pool, and return its secret.

    A machine that joins again counts only once. Raises Unauthenticated for an unusable token, and Conflict
    for a duplicate name, a duplicate machine ID or a missing node.
    """
    if (host := secrets.verified_host(token)) is not None:
        from pools.services.ssh.joining import join_host

        return join_host(pool_name, host, measured, at)
    if (order := secrets.verified_key(token, "order")) is not None:
        return _join_node(pool_name, order, measured, at)
    with transaction.atomic():
        tokens = JoinToken.objects.select_for_update(of=("self",)).select_related("pool")
        token_row = tokens.filter(digest=secrets.secret_digest(token), pool__name=pool_name).first()
        if token_row is None:
            raise Unauthenticated(JOIN_REJECTED)
        former = _former_machine(token_row.pool, measured, at)
        _check_token(token_row, former, at)
        if former is not None and has_changed(former, measured):
            # Once a machine use has ended, its node is marked as lost.
            MachineUse.objects.filter(machine=former, ended_at=None).update(ended_at=at)
        machine = store_machine(former or Machine(pool=token_row.pool), measured, at)
        JoinTokenUse.objects.get_or_create(token=token_row, machine=machine, defaults={"used_at": at})
        action = "joined" if former is None else "joined again"
        gpus = format_count(len(measured.devices), "GPU")
        reason = f"{measured.name} {action} with {gpus}, using a token issued by {token_row.issued_by}"
        history.write(token_row.pool, ScalingKind.JOINED, reason, at=at, machine=measured.name)
    return secrets.machine_secret(machine.pk, machine.secret_version)


def record_report(
    secret: str, *, at: datetime, interruption: Interruption | None = None, booted: BootReport | None = None,
    started: StartReport | None = None, inventory: Inventory | None = None,
) -> Node | None:  # fmt: skip
    """Process a machine's report.

    Return the machine's current node, or None if it has no node. Raises Unauthenticated if the secret is
    unknown or the node has ended.
    """
    node = _reporting_node(secret, at, inventory)
    if node is not None and inventory is not None and node.inventory != inventory:
        Node.objects.filter(pk=node.pk).update(inventory=inventory)
    if node is not None and booted is not None:
        record_boot(node, booted, at=at)
    if node is not None and started is not None:
        record_start(node, started, at=at)
    if node is not None and interruption is not None:
        _record_interruption(node, interruption, at)
        node.refresh_from_db()
    return node


def _record_interruption(node: Node, interruption: Interruption, at: datetime) -> None:
    """Record that a node's machine will be interrupted.

    If a Slurm node is still booting, its boot counts as failed, because the next allocation would have the
    same time limit.
    """
    is_slurm = node.pool.provider == NodePool.Provider.SLURM
    if node.state not in PENDING or not is_slurm:
        if is_slurm and interruption.reason == ENDS_NOW:
            _record_early_end(node)
        interrupt_node(node, interruption, at=at)
        return
    with transaction.atomic():
        node.pool = NodePool.objects.select_for_update(no_key=True).get(pk=node.pool_id)
        if interrupt_node(node, interruption, at=at):
            record_failed_boot(node, interruption.reason, at=at)


def _record_early_end(node: Node) -> None:
    """Record that Slurm is ending the node's job before its time limit."""
    reason = f"Slurm ended job {node.instance_id.partition('-')[0]} before its time limit"
    rows = Node.objects.filter(pk=node.pk, state__in=HOSTING, interruption_at=None, eviction_reason="")
    rows.update(eviction_reason=reason)


def leave(secret: str, *, at: datetime) -> None:
    """Remove a machine at its own request. Raises Unauthenticated. The next tick marks its node as lost."""
    machine = secrets.verified_machine(secret)
    if machine is None or not _current_machines(*machine).update(departed_at=at):
        raise Unauthenticated(UNKNOWN_MACHINE)


def _join_node(pool_name: str, order: str, measured: MachineReport, at: datetime) -> str:
    """Register a machine that was launched for a node, and return its secret.

    The call may be repeated until the node is ready, because a response can be lost.
    """
    pool, _, client_token = order.partition(".")
    if pool != pool_name:
        raise Unauthenticated(JOIN_REJECTED)
    with transaction.atomic():
        matching = Node.objects.select_for_update(of=("self",)).select_related("pool").filter(
            pool__name=pool, client_token=client_token, instance_id=measured.instance_id
        )  # fmt: skip
        node = matching.first()
        if node is None:
            raise Conflict("There is no node for this machine yet. Try again later.")
        if node.state not in PENDING:
            raise Unauthenticated(JOIN_REJECTED)
        first = node.joined_at is None
        node.joined_at, node.address, node.devices = at, measured.address, list(measured.devices)
        node.cpu_milli = min(node.cpu_milli, measured.cpu_milli)
        node.memory_mib = min(node.memory_mib, measured.memory_mib)
        node.gpus = min(node.gpus, len(measured.devices))
        node.gpu_model = node.gpu_model or measured.gpu_model
        node.inventory = dict(measured.inventory)
        node.save()
        if first:
            hardware = f"{node.cpu_milli / 1000:g} cores, {node.memory_mib} MiB, {node.gpus} GPUs"
            reason = f"machine joined: {hardware}"
            history.write(node.pool, ScalingKind.JOINED, reason, at=at, node=node)
    return secrets.node_secret(node.pk)


def _check_token(token: JoinToken, former: Machine | None, at: datetime) -> None:
    """Raise Unauthenticated, with the reason, if the token does not allow the machine to join."""
    if token.revoked_at is not None:
        raise Unauthenticated(
            f"This join token was revoked at {_format_time(token.revoked_at)}. Issue a new token."
        )
    if token.expires_at <= at:
        raise Unauthenticated(
            f"This join token expired at {_format_time(token.expires_at)}. Issue a new token."
        )
    others = token.uses.exclude(machine=former).count()
    if others >= token.max_machines:
        admitted = format_count(token.max_machines, "machine")
        raise Unauthenticated(f"This join token admits {admitted} and has been used up. Issue a new token.")


def _former_machine(pool: NodePool, measured: MachineReport, at: datetime) -> Machine | None:
    """Return the existing row of a machine that joins again, or None if it has not joined before.

    A machine can join again only after it has stopped reporting, because anyone with a token could otherwise
    replace it. Raises Conflict if the machine still reports, is being removed or belongs to another pool.
    """
    if not measured.machine_id:
        return None
    check_no_other_pool(pool, measured)
    rows = Machine.objects.select_for_update(of=("self",)).select_related("pool")
    former = rows.filter(pool=pool, machine_id=measured.machine_id).first()
    if former is None or former.departed_at is not None:
        return former
    if former.removed_at is not None:
        raise Conflict(f"Machine {former.name} is being removed from pool {pool.name}. Try again later.")
    has_reported = former.last_seen_at > former.joined_at
    if has_reported and former.last_seen_at > at - SILENT_AFTER:
        wait = f"{SILENT_AFTER.total_seconds():.0f} s"
        reason = f"This machine still reports as {former.name}"
        raise Conflict(f"{reason}. The machine can join again {wait} after its last report.")
    return former


def check_no_other_pool(pool: NodePool, measured: MachineReport) -> None:
    """Raise Conflict if the machine belongs to a different pool."""
    elsewhere = Machine.objects.filter(machine_id=measured.machine_id, departed_at=None).exclude(pool=pool)
    other = elsewhere.select_related("pool").first() if measured.machine_id else None
    if other is not None:
        place = f"pool {other.pool.name} as {other.name}"
        raise Conflict(
            f"This machine belongs to {place}. Remove the machine there first with `berth machine remove`."
        )


def has_changed(machine: Machine, measured: MachineReport) -> bool:
    """Return whether the reported CPUs, memory or devices differ from the stored ones."""
    former = machine.cpu_milli, machine.memory_mib, tuple(machine.devices)
    return former != (measured.cpu_milli, measured.memory_mib, measured.devices)


def store_machine(machine: Machine, measured: MachineReport, at: datetime) -> Machine:
    """Store a joining machine.

    If another machine has the same name but no longer reports, the new machine replaces it. Raises Conflict
    if the other machine still reports.
    """
    namesakes = Machine.objects.filter(pool=machine.pool, name=measured.name, departed_at=None)
    namesakes = namesakes.exclude(pk=machine.pk)
    namesakes.filter(last_seen_at__lte=at - SILENT_AFTER).update(departed_at=at)
    if machine.pk is not None:
        machine.secret_version += 1
    machine.name, machine.address, machine.machine_id = measured.name, measured.address, measured.machine_id
    machine.cpu_milli, machine.memory_mib = measured.cpu_milli, measured.memory_mib
    machine.devices, machine.gpu_model = list(measured.devices), measured.gpu_model
    machine.inventory = dict(measured.inventory)
    machine.joined_at = machine.last_seen_at = at
    machine.removed_at = machine.departed_at = None
    try:
        with transaction.atomic():
            machine.save()
    except IntegrityError:
        name, pool = measured.name, machine.pool.name
        raise Conflict(
            f"A machine named {name} has already joined pool {pool}. Rename this machine, or remove the "
            f"other one with `berth machine remove {pool} {name}`."
        ) from None
    return machine


def _current_machines(key: int, version: int) -> QuerySet[Machine]:
    """Return a query for the machine with this key and secret version, unless it has departed."""
    return Machine.objects.filter(pk=key, secret_version=version, departed_at=None)


def _format_time(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _reporting_node(secret: str, at: datetime, inventory: Inventory | None) -> Node | None:
    if (key := secrets.verified_key(secret, "node")) is not None:
        node = Node.objects.select_related("pool").filter(pk=int(key)).exclude(state=NodeState.ENDED).first()
        if node is None:
            raise Unauthenticated("This node has been terminated.")
        return node
    machine = secrets.verified_machine(secret)
    reported = {} if inventory is None else {"inventory": inventory}
    if machine is None or not _current_machines(*machine).update(last_seen_at=at, **reported):
        raise Unauthenticated(UNKNOWN_MACHINE)
    use = MachineUse.objects.select_related("machine").filter(machine_id=machine[0], ended_at=None).first()
    if use is None:
        return None
    nodes = Node.objects.select_related("pool").exclude(state=NodeState.ENDED)
    return nodes.filter(pool_id=use.machine.pool_id, instance_id=instance_id(use)).first()
