"""Progress of a booting node, as reported by its machine: the environment, then the start script."""

from dataclasses import dataclass, replace
from datetime import datetime

from django.db import transaction

from berth.db.moves import move
from pools import history
from pools.environments.progress import START, Phase, Progress, ended_outside
from pools.joining.sealed import Unopened
from pools.models import Node, NodePool
from pools.models.node import HOSTING, PENDING, NodeState
from pools.models.scaling import ScalingKind
from pools.services.environments import secrets_for
from pools.services.failed_boots import note_failed_boot


@dataclass(frozen=True, slots=True)
class Booted:
    """Progress of an environment's script; `exit_code` is None while it runs."""

    digest: str
    phases: tuple[Phase, ...] = ()
    exit_code: int | None = None
    output: str = ""


@dataclass(frozen=True, slots=True)
class ToPrepare:
    """Environment that a machine must install before its node is ready; empty for none."""

    digest: str = ""
    script: str = ""
    secrets: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Started:
    """Progress of the start script on one instance. `exit_code` is None while the script runs."""

    instance: str
    exit_code: int | None = None
    seconds: int = 0
    output: str = ""


def note_start(node: Node, started: Started, *, at: datetime) -> None:
    """Store the progress as the node's last phase; mark the node as lost if the script failed.

    A report for another instance is ignored, because a machine may still report its former node. A ready node
    is lost too, because the script starts by stopping everything on the node.
    """
    if started.instance != node.instance_id or node.state not in (*PENDING, *HOSTING):
        return
    state = "running" if started.exit_code is None else "failed" if started.exit_code else "done"
    phase = Phase(START, state, started.seconds, started.output, started.exit_code)
    if state == "running":
        phase = replace(phase, seconds=0)  # otherwise every call would change the row
    phases = [each for each in node.phases if each["phase"] != START] + [phase.to_dict()]
    if phases != node.phases:
        Node.objects.filter(pk=node.pk).update(phases=phases)
    if started.exit_code:
        _lose(node, Progress((phase,)).why, at)
    node.refresh_from_db()


def note_boot(node: Node, booted: Booted, *, at: datetime) -> None:
    """Store the progress. Ignore reports on another environment or on a node that is no longer pending."""
    if booted.digest != node.environment_id or node.state not in PENDING or node.prepared_at is not None:
        return
    progress = Progress(booted.phases)
    if booted.exit_code and not progress.failed:
        progress = ended_outside(progress, f"{booted.output}\nexit code {booted.exit_code}")
    phases = [phase.to_dict() for phase in progress.phases]
    changes = {"phases": phases} if phases != node.phases else {}
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
        return ToPrepare()  # the node stays pending until its timeout; new orders fail with this reason
    return ToPrepare(node.environment.digest, node.environment.script, tuple(sorted(secrets.items())))


def _lose(node: Node, why: str, at: datetime) -> None:
    with transaction.atomic():
        node.pool = NodePool.objects.select_for_update(no_key=True).get(pk=node.pool_id)
        if move(node, "state", expected=(*PENDING, *HOSTING), to=NodeState.LOST, since=at):
            history.write(node.pool, ScalingKind.LOST, why, at=at, node=node)
            note_failed_boot(node, why, at=at)
