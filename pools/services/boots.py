"""Here a machine tells how far the environment of its node is."""
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from berth.db.moves import move
from pools import history
from pools.environments.progress import Phase, Progress, ended_outside
from pools.joining.sealed import Unopened
from pools.models import Node, NodePool
from pools.models.node import PENDING, NodeState
from pools.models.scaling import ScalingKind
from pools.services.environments import secrets_for
from pools.services.failed_boots import note_failed_boot


@dataclass(frozen=True, slots=True)
class Booted:
    """`exit_code` once the script of that digest has ended; `output` what it said outside of its phases."""

    digest: str
    phases: tuple[Phase, ...] = ()
    exit_code: int | None = None
    output: str = ""


@dataclass(frozen=True, slots=True)
class ToPrepare:
    """What a machine still has to do before its node is ready. Empty: nothing."""

    digest: str = ""
    script: str = ""
    secrets: tuple[tuple[str, str], ...] = ()


def note_boot(node: Node, booted: Booted, *, at: datetime) -> None:
    """Of another environment, or of a node that is not on its way any more, nothing is noted."""
    if booted.digest != node.environment_id or node.state not in PENDING or node.prepared_at is not None:
        return
    progress = Progress(booted.phases)
    if booted.exit_code and not progress.failed:
        progress = ended_outside(progress, f"{booted.output}\nit ended with {booted.exit_code}")
    told = [phase.to_dict() for phase in progress.phases]
    changes = {"phases": told} if told != node.phases else {}
    if booted.exit_code == 0:
        Node.objects.filter(pk=node.pk, prepared_at=None).update(**changes, prepared_at=at)
    elif changes:
        Node.objects.filter(pk=node.pk).update(**changes)
    if booted.exit_code:
        _lose(node, progress.why, at)
    node.refresh_from_db()


def to_prepare(node: Node) -> ToPrepare:
    if node.environment is None or node.prepared_at is not None or node.state not in PENDING:
        return ToPrepare()
    try:
        secrets = secrets_for(node.pool, node.environment)
    except Unopened:
        return ToPrepare()  # it stays on its way until its time is over; ordering others is refused with why
    return ToPrepare(node.environment.digest, node.environment.script, tuple(sorted(secrets.items())))


def _lose(node: Node, why: str, at: datetime) -> None:
    with transaction.atomic():
        node.pool = NodePool.objects.select_for_update(no_key=True).get(pk=node.pool_id)
        if move(node, "state", expected=PENDING, to=NodeState.LOST, since=at):
            history.write(node.pool, ScalingKind.LOST, why, at=at, node=node)
            note_failed_boot(node, why, at=at)
