"""Record the boot progress that a node's machine reports for its environment and start script."""

from dataclasses import dataclass, replace
from datetime import datetime

from django.db import transaction

from berth.db.writes.moves import compare_and_set
from pools import history
from pools.environments.progress import START, Phase, Progress, add_script_failure
from pools.joining.sealed import UnsealError
from pools.models import Node, NodePool
from pools.models.node import HOSTING, PENDING, NodeState
from pools.models.scaling import ScalingKind
from pools.services.environments import environment_secrets
from pools.services.failed_boots import record_failed_boot


@dataclass(frozen=True, slots=True)
class BootReport:
    """Progress of installing an environment. `exit_code` is None while the script runs."""

    digest: str
    phases: tuple[Phase, ...] = ()
    exit_code: int | None = None
    output: str = ""


@dataclass(frozen=True, slots=True)
class EnvironmentSetup:
    """Environment to install on a machine before its node is ready.

    All fields are empty for a node without an environment.
    """

    digest: str = ""
    script: str = ""
    secrets: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class StartReport:
    """Progress of one instance's start script. `exit_code` is None while the script runs."""

    instance: str
    exit_code: int | None = None
    seconds: int = 0
    output: str = ""


def record_start(node: Node, started: StartReport, *, at: datetime) -> None:
    """Store the start script's progress as the node's last phase.

    If the script failed, mark the node as lost, even if it was ready, because the script first stops all
    processes. Ignore reports about a different instance.
    """
    if started.instance != node.instance_id or node.state not in (*PENDING, *HOSTING):
        return
    state = "running" if started.exit_code is None else "failed" if started.exit_code else "done"
    phase = Phase(START, state, started.seconds, started.output, started.exit_code)
    if state == "running":
        phase = replace(phase, seconds=0)  # do not write the row if only the duration differs
    phases = [row for row in node.phases if row["phase"] != START] + [phase.to_dict()]
    if phases != node.phases:
        Node.objects.filter(pk=node.pk).update(phases=phases)
    if started.exit_code:
        _mark_lost(node, Progress((phase,)).failure_message, at)
    node.refresh_from_db()


def record_boot(node: Node, booted: BootReport, *, at: datetime) -> None:
    """Store the progress of installing the node's environment.

    Ignore reports about another environment, and reports that arrive when the node is no longer pending or
    its environment is already installed.
    """
    if booted.digest != node.environment_id or node.state not in PENDING or node.prepared_at is not None:
        return
    progress = Progress(booted.phases)
    if booted.exit_code and not progress.failed_phase:
        progress = add_script_failure(progress, f"{booted.output}\nexit code {booted.exit_code}")
    phases = [phase.to_dict() for phase in progress.phases]
    changes = {"phases": phases} if phases != node.phases else {}
    if booted.exit_code == 0:
        Node.objects.filter(pk=node.pk, prepared_at=None).update(**changes, prepared_at=at)
    elif changes:
        Node.objects.filter(pk=node.pk).update(**changes)
    if booted.exit_code:
        _mark_lost(node, progress.failure_message, at)
    node.refresh_from_db()


def load_environment_setup(node: Node) -> EnvironmentSetup:
    if node.environment is None or node.prepared_at is not None or node.state not in PENDING:
        return EnvironmentSetup()
    try:
        secrets = environment_secrets(node.pool, node.environment)
    except UnsealError:
        # The node stays pending until it times out, and new launches fail with this error.
        return EnvironmentSetup()
    return EnvironmentSetup(node.environment.digest, node.environment.script, tuple(sorted(secrets.items())))


def _mark_lost(node: Node, failure: str, at: datetime) -> None:
    with transaction.atomic():
        node.pool = NodePool.objects.select_for_update(no_key=True).get(pk=node.pool_id)
        if compare_and_set(node, "state", expected=(*PENDING, *HOSTING), to=NodeState.LOST, since=at):
            history.write(node.pool, ScalingKind.LOST, failure, at=at, node=node)
            record_failed_boot(node, failure, at=at)
