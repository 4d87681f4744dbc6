"""Issue and revoke join tokens, and remove machines from pools.

Only digests of join tokens are stored.
"""

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from berth.core.errors import Conflict, Invalid
from berth.core.problems import Problem, format_value
from pools import history
from pools.joining import secrets
from pools.models import JoinToken, Machine, MachineUse, Node, NodePool
from pools.models.node import NodeState
from pools.models.scaling import ScalingKind
from pools.providers.base import Interruption
from pools.providers.static import instance_id, mark_departed_if_unused
from pools.services.nodes import interrupt_node
from pools.signals import changed

LIFETIME = timedelta(hours=1)
MAX_LIFETIME = timedelta(days=365)
MAX_MACHINES = 10_000
PREFIX_LENGTH = 10  # number of stored leading characters of a join token, including its prefix


def issue_join_token(
    *, actor: Any, pool: NodePool, lifetime: timedelta, at: datetime, machines: int = 1, comment: str = ""
) -> tuple[JoinToken, str]:
    """Create a join token for a number of machines. Return its row and its secret, which is not stored.

    Raises Invalid, and Conflict if the pool's machines do not join with tokens.
    """
    if pool.provider != NodePool.Provider.STATIC:
        detail = f"Pool {pool.name} uses the provider {pool.provider}, whose machines join without tokens."
        raise Conflict(detail)
    _check_token_values(lifetime, machines, comment)
    secret, digest = secrets.generate_join_token()
    with transaction.atomic():
        token = JoinToken.objects.create(
            pool=pool, digest=digest, prefix=secret[:PREFIX_LENGTH], comment=comment, issued_by=actor.name,
            issued_at=at, expires_at=at + lifetime, max_machines=machines,
        )  # fmt: skip
        summary = {
            "token": token.prefix, "machines": machines, "expires_at": token.expires_at.isoformat(),
            "comment": comment,
        }  # fmt: skip
        changed.send(NodePool, actor=actor, action="issue_join_token", obj=pool, before=None, after=summary)
    return token, secret


def revoke_join_token(*, actor: Any, token: JoinToken, at: datetime) -> None:
    """Revoke a join token. Machines that joined with it remain in the pool. Idempotent."""
    with transaction.atomic():
        usable = JoinToken.objects.filter(pk=token.pk, revoked_at=None)
        if usable.update(revoked_at=at):
            summary = {"token": token.prefix, "comment": token.comment}
            changed.send(
                NodePool,
                actor=actor,
                action="revoke_join_token",
                obj=token.pool,
                before=summary,
                after=None,
            )


def delete_expired_tokens(*, before: datetime) -> int:
    """Delete join tokens that expired before `before`, and return their number.

    The pool's history is kept.
    """
    return JoinToken.objects.filter(expires_at__lt=before).delete()[0]


def check_removable(machine: Machine) -> None:
    """Raise Conflict for an SSH host, because SSH hosts are removed in their pool's settings."""
    pool = machine.pool
    if pool.provider == NodePool.Provider.SSH:
        detail = (
            f"Machine {machine.name} is an SSH host in the settings of pool {pool.name}. Remove it there: "
        )
        raise Conflict(f"{detail}`berth pool edit {pool.name} --hosts FILE`.")


def remove_machine(*, actor: Any, machine: Machine, at: datetime, reason: str = "") -> bool:
    """Remove a machine. Return False if its node must be drained first.

    The removal interrupts the node and cannot be undone. Raises Conflict if the machine has already left.
    """
    with transaction.atomic():
        machine = Machine.objects.select_for_update(of=("self",)).select_related("pool").get(pk=machine.pk)
        if machine.departed_at is not None:
            raise Conflict(
                f"Machine {machine.name} has already left pool {machine.pool.name}. "
                f"List machines with `berth machine list {machine.pool.name}`."
            )
        if machine.removed_at is not None:
            return False
        machine.removed_at = at
        machine.save(update_fields=["removed_at"])
        text = f"machine {machine.name} removed by {actor.name}" + (f": {reason}" if reason else "")
        node = _current_node(machine)
        if node is None or not interrupt_node(node, Interruption(text[:255]), at=at):
            history.write(
                machine.pool, ScalingKind.INTERRUPTION, text, at=at, node=node, machine=machine.name
            )
        has_departed = mark_departed_if_unused(machine.pk, at)
        before, after = {"departed": False}, {"departed": has_departed, "reason": reason}
        changed.send(Machine, actor=actor, action="remove_machine", obj=machine, before=before, after=after)
    return has_departed


def _check_token_values(lifetime: timedelta, machines: int, comment: str) -> None:
    problems = []
    if not 1 <= machines <= MAX_MACHINES:
        problems.append(Problem("max_machines", "is out of range", f"{machines}", f"1 to {MAX_MACHINES}"))
    if not timedelta(0) < lifetime <= MAX_LIFETIME:
        allowed = f"1 to {MAX_LIFETIME.total_seconds():.0f} s"
        problems.append(
            Problem("lifetime_seconds", "is out of range", f"{lifetime.total_seconds():.0f}", allowed)
        )
    if len(comment) > 100 or not comment.isprintable():
        problems.append(
            Problem(
                "comment", "is not a valid comment", format_value(comment), "at most 100 printable characters"
            )
        )
    if problems:
        raise Invalid(problems)


def _current_node(machine: Machine) -> Node | None:
    use = MachineUse.objects.select_related("machine").filter(machine=machine, ended_at=None).first()
    live_nodes = Node.objects.select_related("pool").exclude(state__in=(NodeState.LOST, NodeState.ENDED))
    return live_nodes.filter(pool=machine.pool, instance_id=instance_id(use)).first() if use else None
