"""Issue and revoke join tokens, and remove joined machines.

Only a digest of a join token is stored.
"""

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from berth.core.errors import Conflict, Invalid
from berth.core.problems import Problem, shown
from pools import history
from pools.joining import secrets
from pools.models import JoinToken, Machine, MachineUse, Node, NodePool
from pools.models.node import NodeState
from pools.models.scaling import ScalingKind
from pools.providers.base import Interruption
from pools.providers.static import instance_id, leave_for_good
from pools.services.nodes import interrupt_node
from pools.signals import changed

LIFE_MAX = timedelta(days=7)
SHOWN = 10  # characters of the secret, its kind included


def issue_join_token(
    *, acting: Any, pool: NodePool, lasts: timedelta, at: datetime, comment: str = ""
) -> tuple[JoinToken, str]:
    """The token and its secret, which is shown this once; for one machine."""
    if pool.provider != NodePool.Provider.STATIC:
        detail = f"Pool {pool.name} uses the provider {pool.provider}; its machines join without a token."
        raise Conflict(detail)
    _check(lasts, comment)
    secret, digest = secrets.issue()
    with transaction.atomic():
        token = JoinToken.objects.create(
            pool=pool, digest=digest, prefix=secret[:SHOWN], comment=comment, issued_by=acting.name,
            issued_at=at, expires_at=at + lasts,
        )  # fmt: skip
        told = {"token": token.prefix, "expires_at": token.expires_at.isoformat(), "comment": comment}
        changed.send(NodePool, acting=acting, action="issue join token", obj=pool, before=None, after=told)
    return token, secret


def revoke_join_token(*, acting: Any, token: JoinToken, at: datetime) -> None:
    """Nobody joins by it from now on; who has joined by it stays. Done again it changes nothing."""
    with transaction.atomic():
        if token.used_at is not None:
            raise Conflict(f"Machine {token.used_by} has joined with this token. Remove the machine instead.")
        live = JoinToken.objects.filter(pk=token.pk, used_at=None, revoked_at=None)
        if live.update(revoked_at=at):
            told = {"token": token.prefix, "comment": token.comment}
            changed.send(
                NodePool, acting=acting, action="revoke join token", obj=token.pool, before=told, after=None
            )


def forget_tokens(*, before: datetime) -> int:
    """Those that had run out by then; who joined with which stands in the pool's history."""
    return JoinToken.objects.filter(expires_at__lt=before).delete()[0]


def remove_machine(*, acting: Any, machine: Machine, at: datetime, reason: str = "") -> bool:
    """True: it is gone. False: its node is drained first, and the machine goes with the node's end.

    Its provider says the same with each listing, so nobody takes the node back into use by mistake.
    """
    with transaction.atomic():
        machine = Machine.objects.select_for_update(of=("self",)).select_related("pool").get(pk=machine.pk)
        if machine.departed_at is not None:
            raise Conflict(f"Machine {machine.name} has already left pool {machine.pool.name}.")
        if machine.removed_at is not None:
            return False
        machine.removed_at = at
        machine.save(update_fields=["removed_at"])
        told = f"machine {machine.name} removed by {acting.name}" + (f": {reason}" if reason else "")
        node = _node_of(machine)
        if node is None or not interrupt_node(node, Interruption(told[:255]), at=at):
            history.write(
                machine.pool, ScalingKind.INTERRUPTION, told, at=at, node=node, machine=machine.name
            )
        gone = leave_for_good(machine.pk, at)
        before, after = {"departed": False}, {"departed": gone, "reason": reason}
        changed.send(Machine, acting=acting, action="remove machine", obj=machine, before=before, after=after)
    return gone


def _check(lasts: timedelta, comment: str) -> None:
    problems = []
    if not timedelta(0) < lasts <= LIFE_MAX:
        allowed = f"1 to {LIFE_MAX.total_seconds():.0f} s"
        problems.append(
            Problem("lifetime_seconds", "is not allowed", f"{lasts.total_seconds():.0f}", allowed)
        )
    if len(comment) > 100 or not comment.isprintable():
        problems.append(
            Problem("comment", "is not a valid comment", shown(comment), "at most 100 printable characters")
        )
    if problems:
        raise Invalid(problems)


def _node_of(machine: Machine) -> Node | None:
    use = MachineUse.objects.select_related("machine").filter(machine=machine, ended_at=None).first()
    living = Node.objects.select_related("pool").exclude(state__in=(NodeState.LOST, NodeState.ENDED))
    return living.filter(pool=machine.pool, instance_id=instance_id(use)).first() if use else None
